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
* **half_open**: one request, the probe, may run, for a limited time. A stream's first token is an
  answer; what follows is judged like any other request. Real requests are the only evidence;
  nothing else (health checks, scrapes) can close a breaker.

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
from math import inf
from typing import TYPE_CHECKING

from forebay.core.breaker.cooldown import Cooldown
from forebay.core.breaker.probe import Probe
from forebay.core.breaker.ramp import MOST_DOUBLINGS, ramp
from forebay.core.breaker.states import TRANSITIONS, BreakerSnapshot, BreakerState, Change, Event
from forebay.core.model import Outcome

if TYPE_CHECKING:
    from forebay.core.breaker.cooldown import Rng
    from forebay.core.breaker.ramp import Ramp
    from forebay.core.breaker.settings import BreakerSettings

_OK, _CLOSED = Outcome.OK, BreakerState.CLOSED
_FAILURES = frozenset({Outcome.FAILURE, Outcome.TIMEOUT})


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


class Breaker:
    """Decides whether an endpoint may be tried; see the module's theory of operation.

    Args:
        settings: thresholds and times.
        rng: where the cooldowns' jitter comes from.
    """

    def __init__(self, settings: BreakerSettings, rng: Rng) -> None:
        self._settings = settings
        self._cooldown = Cooldown(settings, rng)
        self._probe = Probe(settings)
        self._state = BreakerState.CLOSED
        self._pass = Pass(epoch=0, probe=False)  # what requests of this epoch share
        self._failures = 0  # in a row
        self._answers = 0  # in this closed period
        self._trips = 0
        self._recoveries = 0
        self._seen_at: float | None = None
        self._age_s = 0.0  # of this state

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
            state is BreakerState.HALF_OPEN and not self._probe.held
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
        if self.state(now) is BreakerState.HALF_OPEN and not self._probe.held:
            self._begin_epoch()
            timeout_s = self._probe.take(usual_s)
            return Pass(self._pass.epoch, probe=True, timeout_s=timeout_s)
        return self._pass

    def answered(self, pass_: Pass, now: float) -> Change | None:
        """Note that a request which still runs has got the first of its answer.

        Returns:
            The transition that this made, else None.
        """
        if not pass_.probe:
            return None
        self._let_time_pass(now)
        if pass_.epoch != self._pass.epoch or not self._probe.held:
            return None
        return self._move(Event.PROBE_ANSWERED)

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
                return self._move(Event.TRIPPED)
        return None

    def patience_s(self, usual_s: float) -> float:
        """Return how long an endpoint may be silent, though asked, before that is a failure.

        Args:
            usual_s: how long it usually takes to answer; 0 while not known.
        """
        return self._probe.patience_s(usual_s)

    def retry_after_s(self, now: float) -> float:
        """Return the time until the next request may be tried, as far as that is known."""
        state = self.state(now)
        if state is BreakerState.OPEN:
            return max(0.0, self._cooldown.length_s - self._age_s)
        if self._probe.held:
            return max(0.0, -self._probe.overdue_s)
        return 0.0

    def ramp(self, floor: int, ceiling: int, now: float) -> Ramp | None:
        """Return how much is allowed now, for a while after a recovery; else None.

        An endpoint that has just come back gets its floor, doubling every `ramp_double_s`, so that
        the backlog does not knock it over again.
        """
        self._let_time_pass(now)
        if not self._ramping:
            return None
        return ramp(floor, ceiling, self._age_s, self._settings.ramp_double_s)

    def cap(self, floor: int, ceiling: int, now: float) -> int:
        """Return the concurrency allowed now: `ceiling`, or less while it ramps."""
        where = self.ramp(floor, ceiling, now)
        return ceiling if where is None else where.cap

    def snapshot(self, now: float) -> BreakerSnapshot:
        """Return everything there is to see, of one instant."""
        remaining_s = self.retry_after_s(now)
        return BreakerSnapshot(
            state=self._state,
            failures=self._failures,
            cooldown_s=0.0 if self._has_proved_itself else self._cooldown.length_s,
            remaining_s=remaining_s,
            trips=self._trips,
            recoveries=self._recoveries,
            probe_in_flight=self._probe.held,
            ramping=self._ramping,
        )

    @property
    def _ramping(self) -> bool:
        return (
            self._state is BreakerState.CLOSED
            and self._recoveries > 0
            and self._age_s < self._settings.ramp_double_s * MOST_DOUBLINGS
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
        if self._probe.held:
            self._probe.age(elapsed_s)
            if self._probe.overdue_s >= 0:
                # The new cooldown began when the lease ran out, not when somebody noticed.
                self._move(Event.PROBE_EXPIRED, age_s=self._probe.overdue_s)
                self._probe.ran_out()
        if self._state is BreakerState.OPEN and self._age_s >= self._cooldown.length_s:
            self._move(Event.COOLED_DOWN, age_s=self._age_s - self._cooldown.length_s)

    def _end_probe(self, outcome: Outcome) -> Change | None:
        if not self._probe.held:
            # Its lease ran out, which counted as a failure; what it brings now counts no more.
            return Change(BreakerState.HALF_OPEN, BreakerState.OPEN, Event.PROBE_EXPIRED.value)
        if outcome is _OK:
            return self._move(Event.PROBE_ANSWERED)
        if outcome in _FAILURES:
            if outcome is Outcome.TIMEOUT:
                self._probe.ran_out()
            return self._move(Event.PROBE_FAILED)
        # Says nothing about the endpoint: the next request may probe.
        self._probe.give_back()
        return None

    def _begin_epoch(self) -> None:
        self._pass = Pass(self._pass.epoch + 1, probe=False)

    def _move(self, event: Event, *, age_s: float = 0.0) -> Change:
        """Go where the table says; a pair that it does not list is a bug and raises KeyError."""
        before = self._state
        after = TRANSITIONS[before][event]
        if after is BreakerState.OPEN:
            if self._has_proved_itself:
                self._cooldown.forget()
            self._cooldown.escalate()
        if event is Event.TRIPPED:
            self._begin_epoch()  # whatever is still running has nothing more to say
            self._trips += 1
        if after is BreakerState.CLOSED:
            self._recoveries += 1
            self._failures = 0
            self._answers = 1  # the probe's own
            self._probe.answered()
        self._probe.give_back()
        self._state = after
        self._age_s = age_s
        return Change(before, after, event.value)
