"""What the core knows of one endpoint: its limit, its breaker, what runs there."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from forebay.core.breaker import BreakerState
from forebay.core.model import EngineState, Outcome, ServiceClass
from forebay.core.rest import Rest
from forebay.core.silence import Silence

if TYPE_CHECKING:
    from forebay.core.breaker import Breaker, Change, Ramp
    from forebay.core.grant import Grant
    from forebay.core.limits.protocol import Limit
    from forebay.core.member import Member
    from forebay.core.model import Decision, Ending, Endpoint, Signal, Timing
    from forebay.core.observer import Observer
    from forebay.core.routing import Pool

# Weight of a new reading in a running mean of times.
_TIME_GAIN = 0.1
# How often a limit that ramps is looked at while requests wait, seconds.
_RELOOK_S = 1.0
_SOON_S = 0.001
# What an engine said holds for so long; one that slept is then tried again. Seconds.
_STALE_S = 15.0

_OK, _AWAKE, _CLOSED = Outcome.OK, EngineState.AWAKE, BreakerState.CLOSED


@dataclass(slots=True, eq=False, repr=False)
class EndpointState:
    """One endpoint while it runs.

    Args:
        endpoint: what the configuration says of it.
        law: finds its in-flight limit.
        breaker: keeps requests away while it is broken.
        ceiling: slots that it never exceeds.
        observer: hears of the limit and the breaker.
        native: its member that owns its floor.
        members: all of them: one for each queue that it serves.
        inflight: slots taken.
        limit: what the law says, less while it ramps after an outage.
        alive: it is worth waiting for. This and the next three may change with time alone: `look`
            brings them up to date.
        usable: whether requests may start there now: it is alive, and did not ask to be left alone.
        in_service: nothing keeps requests away: its breaker is closed, it does not ramp, nor did it
            ask to be left alone for long.
        calm: a look would change nothing, nor will one until something else happens: it is usable,
            its breaker closed, its limit where the law put it.
        draining: it finishes what it has, and gets nothing more.
        pool: where it stands by its load, if its model has several endpoints.
        level: its place there, together with `place`.
        keys: requests in flight by their affinity.
        others: requests at its engine, by what that said last, that are none of ours. They count
            until `others_until`, and only where endpoints are compared.
        peak: the most slots that were taken at once since then, or about that time.
        signal: what its engine last said of itself.
        rest: whether it is to be left alone.
        silence: whether anything is heard of it.
        service_s: running mean of how long a request holds its slot; 0 while not known.
        answer_s: running mean of the time until a request is answered: to its first token, or to
            its end if it does not stream; 0 while not known.
    """

    endpoint: Endpoint
    law: Limit
    breaker: Breaker
    ceiling: int
    observer: Observer
    native: Member = field(init=False)
    members: tuple[Member, ...] = field(default=(), init=False)
    inflight: int = field(default=0, init=False)
    limit: int = field(init=False)
    alive: bool = field(default=True, init=False)
    in_service: bool = field(default=True, init=False)
    draining: bool = field(default=False, init=False)
    usable: bool = field(default=True, init=False)
    calm: bool = field(default=True, init=False)
    pool: Pool | None = field(default=None, init=False)
    level: int = field(default=-1, init=False)
    place: int = field(default=0, init=False)
    keys: dict[str, int] = field(default_factory=dict, init=False)
    others: float = field(default=0.0, init=False)
    others_until: float = field(default=-inf, init=False)
    peak: int = field(default=0, init=False)
    signal: Signal | None = field(default=None, init=False)
    rest: Rest = field(default_factory=Rest, init=False)
    silence: Silence = field(default_factory=Silence, init=False)
    service_s: float = field(default=0.0, init=False)
    answer_s: float = field(default=0.0, init=False)
    # A closed breaker admits whatever the time, and need not be asked.
    _closed: bool = field(default=True, init=False)
    _ramping: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.limit = self.law.decision.limit

    def __repr__(self) -> str:
        return f"<EndpointState {self.endpoint.id}: {self.inflight} of {self.limit}>"

    @property
    def live(self) -> int:
        """How many grants are out; `inflight` counts their slots."""
        return sum(member.live for member in self.members)

    @property
    def load(self) -> float:
        """The share of its limit that is taken."""
        return (self.inflight + self.others) / self.limit

    @property
    def to_be_tried(self) -> bool:
        """Whether the next request would be the probe after an outage."""
        return self.usable and not self._closed

    @property
    def inflight_by_class(self) -> dict[ServiceClass, int]:
        """The slots taken, by how the room treats who took them."""
        slots = dict.fromkeys(ServiceClass, 0)
        for member in self.members:
            slots[member.service_class] += member.inflight
        return slots

    @property
    def waiting(self) -> bool:
        """Whether any request waits that could run here."""
        return any(member.waiting for member in self.members)

    @property
    def engine_serves(self) -> bool:
        """Whether the engine, as far as it says, is awake."""
        return self.signal is None or self.signal.state is _AWAKE

    def broken(self, now: float) -> bool:
        """Whether requests must be refused at once: waiting would not be short."""
        return not (self.engine_serves and (self._closed or self.breaker.admits(now)))

    def ramp(self, now: float) -> Ramp | None:
        """How far it is back after an outage; None: it is all back, or has never been away."""
        where = self.breaker.ramp(self.endpoint.floor, self.ceiling, now) if self._ramping else None
        return where if where is not None and where.cap < self.ceiling else None

    def look(self, now: float) -> bool:
        """Bring up to date what time may change, and return whether anything did."""
        alive = not self.draining and not self.broken(now)
        usable = alive and now >= self.rest.until
        limit = self.law.decision.limit
        if self._ramping:
            allowed = self.breaker.cap(self.endpoint.floor, self.ceiling, now)
            self._ramping = allowed < self.ceiling
            limit = min(limit, allowed)
        in_service = alive and self._closed and not (self._ramping or self.rest.is_long(now))
        self.calm = usable and in_service
        before = (self.alive, self.in_service, self.usable, self.limit)
        self.alive, self.in_service, self.usable, self.limit = alive, in_service, usable, limit
        return before != (alive, in_service, usable, limit)

    @property
    def steady(self) -> bool:
        """Whether only an event, not time alone, can change how it is."""
        return self.draining or (self.usable and not self._ramping)

    def changes_at(self, now: float) -> float:
        """Return when it is worth a look although nothing happens; infinity if never."""
        if not self.engine_serves:
            return inf
        if not self.usable:
            at = max(self.rest.until, now + self.breaker.retry_after_s(now))
            return max(at, now + _SOON_S)  # a time so near that it rounds to `now` is not reached
        return now + _RELOOK_S if self._ramping else inf

    # -- what it is told -------------------------------------------------------------------------

    def read(self, timing: Timing, grant: Grant, now: float) -> None:
        """Fold in a reading of a request."""
        guard = grant.guard
        if guard is not None:
            guard.read(grant.member, timing, grant.at, now)
        decision = self.law.on_timing(timing, started_at=grant.at, inflight=self.inflight, now=now)
        if decision is not None:
            self._limit_moved(decision, now)

    def answered(self, grant: Grant, now: float) -> None:
        """Fold in that a request which still runs has got the first of its answer."""
        if grant.answered:
            return
        grant.answered = True
        self.silence.answered(now)
        if grant.guard is not None:
            grant.guard.answered(grant, now)
        self.answer_s = _mean(self.answer_s, now - grant.at)
        change = self.breaker.answered(grant.pass_, now)
        if change is not None:
            self._breaker_moved(change, now)

    def ended(self, grant: Grant, ending: Ending, now: float) -> None:
        """Fold in how a request ended; call it while its slot still counts as taken."""
        started_at = grant.at
        for timing in ending.timings:
            self.read(timing, grant, now)
        outcome = ending.outcome
        decision = self.law.on_end(
            outcome,
            started_at=started_at,
            inflight=self.inflight,
            now=now,
            work=ending.work,
        )
        if decision is not None:
            self._limit_moved(decision, now)
        if outcome is _OK:
            self.rest.answered()
            held_s = now - started_at
            self.service_s = _mean(self.service_s, held_s)
            if not grant.answered:
                self.answer_s = _mean(self.answer_s, held_s)
        elif self.rest.asked(ending, now) or self._refuses_too_often(ending, started_at, now):
            self.calm = False
        if self.silence.ended(grant, outcome, now) and self._is_silent(now):
            outcome = Outcome.TIMEOUT
        change = self.breaker.end(grant.pass_, outcome, now)
        if change is not None:
            self._breaker_moved(change, now)

    def _is_silent(self, now: float) -> bool:
        return now - self.silence.since >= self.breaker.patience_s(self.answer_s)

    def _refuses_too_often(self, ending: Ending, started_at: float, now: float) -> bool:
        """Let it rest if it does nothing but refuse, and others could serve."""
        pool = self.pool
        if pool is None or not self.rest.is_due(ending, started_at):
            return False
        if not any(other.usable for other in pool.states if other is not self):
            return False
        self.rest.take(now, pool.rng)
        return True

    def hear(self, signal: Signal | None, now: float) -> None:
        """Fold in what the engine says of itself; None means that it could not be read."""
        if signal is not None:
            self.signal = signal
            if self.pool is not None:
                self._compare(signal, self.pool)
        elif self.signal is not None and now - self.signal.at >= _STALE_S:
            self.signal = None  # not knowing never stops traffic
        self.calm = False
        decision = self.law.on_signal(signal, now=now)
        if decision is not None:
            self._limit_moved(decision, now)

    def _compare(self, signal: Signal, pool: Pool) -> None:
        """See what others there are at the engine: what it has beyond all that may be ours."""
        waiting = (signal.waiting or 0.0) if signal.waiting_unit == "requests" else 0.0
        self.others = max(0.0, (signal.running or 0.0) + waiting - self.peak)
        self.others_until = signal.at + _STALE_S
        self.peak = self.inflight
        pool.heard(self)

    def change(self, endpoint: Endpoint, now: float) -> None:
        """Take over what the configuration says of it now: the bounds of its limit, and sizes."""
        self.endpoint = endpoint
        self.ceiling = endpoint.ceiling
        decision = self.law.resize(floor=endpoint.floor, ceiling=endpoint.ceiling)
        if decision is not None:
            self._limit_moved(decision, now)

    def begin_like_others(self, now: float) -> None:
        """Let a new endpoint's limit begin where the model's others do well, rather than alone.

        The least of them counts, since nobody knows yet which of them it is like; and none that
        was away, for that is at its floor for no other reason.
        """
        others = [] if self.pool is None else self.pool.states
        limits = [each.limit for each in others if each is not self and each.in_service]
        if not limits or min(limits) <= self.limit:
            return
        decision = self.law.restart(now=now, limit=min(limits))
        if decision is not None:
            self._limit_moved(decision, now)

    def _breaker_moved(self, change: Change, now: float) -> None:
        self.observer.breaker_changed(self.endpoint, change, now)
        self._closed = change.after is _CLOSED
        self.calm = False
        if self._closed:  # after an outage, the limit begins again at the floor
            self._ramping = True
            decision = self.law.restart(now=now)
            if decision is not None:
                self._limit_moved(decision, now)

    def _limit_moved(self, decision: Decision, now: float) -> None:
        self.calm = False
        self.observer.limit_changed(self.endpoint, decision, now)


def _mean(mean_s: float, seconds: float) -> float:
    """A running mean with one more reading in it; 0 stands for no reading yet."""
    return mean_s + _TIME_GAIN * (seconds - mean_s) if mean_s else seconds
