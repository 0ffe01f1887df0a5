"""The circuit breaker of one endpoint: whether requests may be tried there at all.

Theory of operation
-------------------
A breaker is in one of three states, and `TRANSITIONS` lists every way from one to another:

    closed ──failures──▶ open ──cooldown over──▶ half_open ──probe answered──▶ closed
                          ▲                          │
                          └── probe failed/expired ──┘

* **closed**: requests run. `fail_threshold` failures in a row open it. Only failures and time-outs
  are failures; whatever says nothing about the endpoint's health (a refusal for load, a client's
  mistake, a wrong key, a start-up, a caller that left) leaves the count as it is.
* **open**: nothing runs until the cooldown is over. Each opening takes a longer cooldown than the
  one before. That escalation outlives a recovery; it is forgotten only after a closed period that
  was long enough *and* saw enough answers, so an endpoint that answers small requests and dies of
  large ones does not flap at the shortest cooldown for ever.
* **half_open**: one request, the probe, may run. The right to it is a lease: held by one request
  until it is answered, for a limited time, and given back however that request ends. A stream's
  first token is an answer; what follows is judged like any other request. Real requests are the
  only evidence; nothing else (health checks, scrapes) can close a breaker.

  That time is `probe_timeout_s`, or a few times what answers usually take if that is more: who is
  slow is not broken. Before the first answer of all nobody knows what is usual; until then a probe
  that runs out of time gives the next one twice as long, up to `max_cooldown_s`.

Every request carries a `Pass` from `begin` to `end`. It names the *epoch* in which the request
began; results of an earlier epoch are ignored, so one burst of failures is one trip and a success
that was under way when the breaker opened does not close it.

Time moves the state only when somebody looks, and gives the same result whenever that is: what
matters is kept as ages that grow by the time since the last look. A clock that jumps backwards
adds nothing to them and costs nothing but the jump; no instant is stored that could lie in the
future for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Protocol

from forebay.core.model import Outcome
from forebay.errors import ConfigError

_OK = Outcome.OK
_FAILURES = frozenset({Outcome.FAILURE, Outcome.TIMEOUT})

# After ten doublings a ramp is at 1024 times the floor: beyond every limit there is.
_RAMP_DOUBLINGS = 10
# A probe that takes so many times what answers usually take is not merely slow.
_PATIENCE = 3.0


class BreakerState(StrEnum):
    """Whether requests may be tried. Values are metric labels."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


_CLOSED = BreakerState.CLOSED


class _Event(StrEnum):
    """What moves a breaker; the value is the reason that operators read."""

    TRIPPED = "failures in a row"
    COOLED_DOWN = "cooldown over"
    PROBE_ANSWERED = "probe answered"
    PROBE_FAILED = "probe failed"
    PROBE_EXPIRED = "probe got no answer in time"


TRANSITIONS: dict[BreakerState, dict[_Event, BreakerState]] = {
    BreakerState.CLOSED: {_Event.TRIPPED: BreakerState.OPEN},
    BreakerState.OPEN: {_Event.COOLED_DOWN: BreakerState.HALF_OPEN},
    BreakerState.HALF_OPEN: {
        _Event.PROBE_ANSWERED: BreakerState.CLOSED,
        _Event.PROBE_FAILED: BreakerState.OPEN,
        _Event.PROBE_EXPIRED: BreakerState.OPEN,
    },
}


class Rng(Protocol):
    """The one method of `random.Random` that a breaker needs."""

    def random(self) -> float:
        """Return the next number in [0, 1)."""


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """How an endpoint's breaker behaves.

    Args:
        enabled: False keeps it closed whatever happens.
        fail_threshold: failures in a row that open it, ≥ 1.
        base_cooldown_s: the first cooldown, and the shortest.
        max_cooldown_s: the longest cooldown, jitter included.
        backoff_factor: how much longer each cooldown is than the one before, ≥ 1.
        jitter: the share by which a cooldown varies at random to either side.
        probe_timeout_s: how long a probe may go without an answer before it counts as failed; more
            where answers usually take long.
        reset_after_requests: answers that a closed period needs before escalation is forgotten.
        reset_after_s: how long that closed period must last.
        ramp_double_s: after a recovery, the time in which the allowed concurrency doubles.

    Raises:
        ConfigError: if a value makes no sense.
    """

    enabled: bool = True
    fail_threshold: int = 3
    base_cooldown_s: float = 5.0
    max_cooldown_s: float = 300.0
    backoff_factor: float = 2.0
    jitter: float = 0.1
    probe_timeout_s: float = 15.0
    reset_after_requests: int = 10
    reset_after_s: float = 60.0
    ramp_double_s: float = 30.0

    def __post_init__(self) -> None:
        if self.fail_threshold < 1:
            raise ConfigError(f"fail_threshold is {self.fail_threshold}; it must be at least 1")
        if not 0 < self.base_cooldown_s <= self.max_cooldown_s:
            raise ConfigError(
                f"base_cooldown_s is {self.base_cooldown_s} and max_cooldown_s is "
                f"{self.max_cooldown_s}; the first must be above 0 and not above the second"
            )
        if self.backoff_factor < 1:
            raise ConfigError(f"backoff_factor is {self.backoff_factor}; it must be at least 1")
        for name in ("probe_timeout_s", "ramp_double_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0")


@dataclass(frozen=True, slots=True)
class Pass:
    """Leave to run; handed back to `Breaker.end` once for each request that got it.

    Args:
        epoch: when it began, as the breaker counts.
        probe: it tries an endpoint that was broken.
        timeout_s: how long a probe may go without an answer; infinity for the others.
    """

    epoch: int
    probe: bool
    timeout_s: float = inf


@dataclass(frozen=True, slots=True)
class Change:
    """One transition, and why."""

    before: BreakerState
    after: BreakerState
    reason: str


@dataclass(frozen=True, slots=True)
class BreakerSnapshot:
    """What a breaker is like at one instant.

    Args:
        state: see `BreakerState`.
        failures: failures in a row so far; when not closed, those that opened it.
        cooldown_s: the last cooldown's length; 0 before the first and once it is forgotten.
        remaining_s: time until the next request may be tried, as far as that is known.
        trips: times it went from closed to open.
        recoveries: times it went back to closed.
        probe_in_flight: a request holds the probe's lease.
        ramping: closed again so lately that concurrency is still capped.
    """

    state: BreakerState
    failures: int
    cooldown_s: float
    remaining_s: float
    trips: int
    recoveries: int
    probe_in_flight: bool
    ramping: bool


class Breaker:
    """Decides whether an endpoint may be tried; see the module's theory of operation.

    Args:
        settings: thresholds and times.
        rng: where the cooldowns' jitter comes from.
    """

    def __init__(self, settings: BreakerSettings, rng: Rng) -> None:
        self._settings = settings
        self._rng = rng
        self._state = BreakerState.CLOSED
        self._pass = Pass(epoch=0, probe=False)  # what requests of this epoch share
        self._probing = False
        self._failures = 0  # in a row
        self._answers = 0  # in this closed period
        self._backoff_s = 0.0  # before jitter; 0 means no escalation
        self._cooldown_s = 0.0
        self._trips = 0
        self._recoveries = 0
        self._seen_at: float | None = None
        self._age_s = 0.0  # of this state
        self._probe_age_s = 0.0
        self._probe_timeout_s = 0.0  # of the last probe
        self._patience_s = 0.0  # what the next probe gets at least, until the first answer of all

    def __repr__(self) -> str:
        return f"<Breaker {self._state} age={self._age_s:.1f}s failures={self._failures}>"

    def state(self, now: float) -> BreakerState:
        """Return the state; open turns into half_open by itself when the cooldown is over."""
        self._let_time_pass(now)
        return self._state

    def admits(self, now: float) -> bool:
        """Say whether one more request may begin."""
        state = self.state(now)
        return state is BreakerState.CLOSED or (
            state is BreakerState.HALF_OPEN and not self._probing
        )

    def begin(self, now: float, usual_s: float = 0.0) -> Pass:
        """Note that a request was granted; in half_open it takes the probe's lease.

        A request that begins although `admits` says no gets a pass whose result is ignored.

        Args:
            now: the time.
            usual_s: how long this endpoint usually takes to answer; 0 while not known.
        """
        if self._state is _CLOSED:  # which time does not change
            return self._pass
        if self.state(now) is BreakerState.HALF_OPEN and not self._probing:
            self._probing = True
            self._probe_age_s = 0.0
            patience_s = _PATIENCE * usual_s if usual_s else self._patience_s
            self._probe_timeout_s = max(self._settings.probe_timeout_s, patience_s)
            self._begin_epoch()
            return Pass(self._pass.epoch, probe=True, timeout_s=self._probe_timeout_s)
        return self._pass

    def answered(self, pass_: Pass, now: float) -> Change | None:
        """Note that a request which still runs has got the first of its answer.

        Returns:
            The transition that this made, else None.
        """
        if not pass_.probe:
            return None
        self._let_time_pass(now)
        if pass_.epoch != self._pass.epoch or not self._probing:
            return None
        return self._move(_Event.PROBE_ANSWERED)

    def end(self, pass_: Pass, outcome: Outcome, now: float) -> Change | None:
        """Fold in how a request ended; call it exactly once for each `begin`.

        Returns:
            The transition that this made, else None. A probe that comes back too late brings the
            one that its lateness had made.
        """
        if pass_ is self._pass and self._state is _CLOSED and outcome is _OK:  # nearly always
            self._failures = 0
            self._answers += 1
            return None
        self._let_time_pass(now)
        if pass_.epoch != self._pass.epoch or not self._settings.enabled:
            return None
        if self._state is not _CLOSED:
            return self._end_probe(outcome) if pass_.probe else None
        if outcome is _OK:  # the probe, which `answered` has counted
            self._failures = 0
        elif outcome in _FAILURES:
            self._failures += 1
            if self._failures >= self._settings.fail_threshold:
                return self._move(_Event.TRIPPED)
        return None

    def retry_after_s(self, now: float) -> float:
        """Return the time until the next request may be tried, as far as that is known."""
        state = self.state(now)
        if state is BreakerState.OPEN:
            return max(0.0, self._cooldown_s - self._age_s)
        if self._probing:
            return max(0.0, self._probe_timeout_s - self._probe_age_s)
        return 0.0

    def cap(self, floor: int, limit: int, now: float) -> int:
        """Return the concurrency allowed now: `limit`, or less for a while after a recovery.

        An endpoint that has just come back gets its floor, doubling every `ramp_double_s`, so that
        the backlog does not knock it over again.
        """
        self._let_time_pass(now)
        if not self._ramping:
            return limit
        return min(limit, int(floor * 2.0 ** (self._age_s / self._settings.ramp_double_s)))

    def snapshot(self, now: float) -> BreakerSnapshot:
        """Return everything there is to see, of one instant."""
        remaining_s = self.retry_after_s(now)
        return BreakerSnapshot(
            state=self._state,
            failures=self._failures,
            cooldown_s=0.0 if self._has_proved_itself else self._cooldown_s,
            remaining_s=remaining_s,
            trips=self._trips,
            recoveries=self._recoveries,
            probe_in_flight=self._probing,
            ramping=self._ramping,
        )

    @property
    def _ramping(self) -> bool:
        return (
            self._state is BreakerState.CLOSED
            and self._recoveries > 0
            and self._age_s < self._settings.ramp_double_s * _RAMP_DOUBLINGS
        )

    @property
    def _has_proved_itself(self) -> bool:
        return (
            self._state is BreakerState.CLOSED
            and self._answers >= self._settings.reset_after_requests
            and self._age_s >= self._settings.reset_after_s
        )

    def _let_time_pass(self, now: float) -> None:
        elapsed_s = 0.0 if self._seen_at is None else max(0.0, now - self._seen_at)
        self._seen_at = now
        self._age_s += elapsed_s
        if self._probing:
            self._probe_age_s += elapsed_s
            overdue_s = self._probe_age_s - self._probe_timeout_s
            if overdue_s >= 0:
                # The new cooldown began when the lease ran out, not when somebody noticed.
                self._move(_Event.PROBE_EXPIRED, age_s=overdue_s)
                self._grow_patience()
        if self._state is BreakerState.OPEN and self._age_s >= self._cooldown_s:
            self._move(_Event.COOLED_DOWN, age_s=self._age_s - self._cooldown_s)

    def _end_probe(self, outcome: Outcome) -> Change | None:
        if not self._probing:
            # Its lease ran out, which counted as a failure; what it brings now counts no more.
            return Change(BreakerState.HALF_OPEN, BreakerState.OPEN, _Event.PROBE_EXPIRED.value)
        if outcome is _OK:
            return self._move(_Event.PROBE_ANSWERED)
        if outcome in _FAILURES:
            if outcome is Outcome.TIMEOUT:
                self._grow_patience()
            return self._move(_Event.PROBE_FAILED)
        # Says nothing about the endpoint: the next request may probe.
        self._probing = False
        return None

    def _grow_patience(self) -> None:
        self._patience_s = min(self._settings.max_cooldown_s, 2.0 * self._probe_timeout_s)

    def _begin_epoch(self) -> None:
        self._pass = Pass(self._pass.epoch + 1, probe=False)

    def _move(self, event: _Event, *, age_s: float = 0.0) -> Change:
        """Go where the table says; a pair that it does not list is a bug and raises KeyError."""
        before = self._state
        after = TRANSITIONS[before][event]
        if after is BreakerState.OPEN:
            self._cooldown_s = self._next_cooldown_s()
        if event is _Event.TRIPPED:
            self._begin_epoch()  # whatever is still running has nothing more to say
            self._trips += 1
        if after is BreakerState.CLOSED:
            self._recoveries += 1
            self._failures = 0
            self._answers = 1  # the probe's own
            self._patience_s = 0.0
        self._probing = False
        self._state = after
        self._age_s = age_s
        return Change(before, after, event.value)

    def _next_cooldown_s(self) -> float:
        settings = self._settings
        if self._backoff_s == 0.0 or self._has_proved_itself:
            self._backoff_s = settings.base_cooldown_s
        else:
            longer_s = self._backoff_s * settings.backoff_factor
            self._backoff_s = min(settings.max_cooldown_s, longer_s)
        swing = 1.0 + settings.jitter * (2.0 * self._rng.random() - 1.0)
        jittered_s = self._backoff_s * swing
        return min(settings.max_cooldown_s, max(settings.base_cooldown_s, jittered_s))
