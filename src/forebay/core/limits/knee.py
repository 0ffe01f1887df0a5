"""Find the knee: as many requests in flight as raise the work per second, and no more.

`search` looks for it in what is answered. What happens here is everything else that bears on a
limit: its bounds; what is left out (the first answers after idling); refusals and time-outs, which
cut it by a factor and keep it lower for some time; and the engine's own word, which only ever
tightens.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from forebay.core.limits.course import Room
from forebay.core.limits.engine import EngineWord
from forebay.core.limits.first import Begin, FirstTokens
from forebay.core.limits.pace import Reading
from forebay.core.limits.protocol import begin_again
from forebay.core.limits.search import Search
from forebay.core.limits.strain import Strain
from forebay.core.model import Decision, Outcome, TimingKind
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.core.limits.course import Step
    from forebay.core.model import Signal, Timing

_IDLE_S = 30.0
_OVERLOAD = {Outcome.TIMEOUT: "requests time out", Outcome.CONGESTION: "refused for load"}
# A time-out after less than so many usual times is its caller's deadline, no overload.
_LATE = 2.0
_PREEMPTS = "engine preempts"
# How long what was too much is not tried again, at first and at most.
_BARRED_S = {
    _OVERLOAD[Outcome.TIMEOUT]: (10.0, 60.0),
    _OVERLOAD[Outcome.CONGESTION]: (3.0, 12.0),
    _PREEMPTS: (60.0, 600.0),
}
_ESCALATED = 0.5
_TRIM = 0.9  # what was preempted is recomputed: a little too much, but it gets done


@dataclass(frozen=True, slots=True)
class KneeSettings:
    """How the law weighs what it sees.

    Args:
        backoff: what a cut multiplies the limit with, in (0, 1).
        stale_s: age from which an engine's metrics hold growth.

    Raises:
        ConfigError: if a value makes no sense.
    """

    backoff: float = 0.8
    stale_s: float = 15.0

    def __post_init__(self) -> None:
        if not 0 < self.backoff < 1:
            raise ConfigError(f"backoff is {self.backoff}; it must be between 0 and 1")
        if self.stale_s <= 0:
            raise ConfigError(f"stale_s is {self.stale_s}; it must be above 0")


class Knee:
    """Work per second decides (`protocol.Limit`).

    Args:
        floor: where it starts, and what it never goes below; below 1 it counts as 1.
        ceiling: what it never goes above; where it is below the floor, it wins.
        settings: see `KneeSettings`.
    """

    def __init__(self, floor: int, ceiling: int, settings: KneeSettings | None = None) -> None:
        self._settings = settings or KneeSettings()
        self._ceiling = max(1, ceiling)
        self._floor = max(1, min(floor, self._ceiling))
        self._decision = Decision(self._floor, "start: at the floor")
        self._search = Search(self._floor)
        self._first = FirstTokens()
        self._strain = Strain()
        self._engine = EngineWord(self._settings.stale_s)
        self._cold = True
        self._active_at = inf
        self._now = -inf
        self._cut_at = -inf
        self._lowered_at = -inf
        self._bar = self._ceiling  # not to be exceeded until `_barred_until`
        self._barred = ""
        self._barred_s = 0.0
        self._barred_until = -inf

    @property
    def decision(self) -> Decision:
        """The limit that holds now, and why."""
        return self._decision

    def on_timing(
        self, timing: Timing, *, started_at: float, inflight: int, now: float
    ) -> Decision | None:
        """Fold in that an answer begins; what counts for more is how long whole requests take."""
        self._set_clock(now)
        if self._cold or not 0 < timing.seconds < inf:
            return None
        if timing.kind is TimingKind.OUTPUT_TOKEN:
            self._first.see_step(timing.seconds)
        if timing.kind is not TimingKind.FIRST_TOKEN:
            return None
        # Who was admitted before the last cut waited for more than is in flight now.
        since = inflight if started_at >= self._lowered_at else 0
        begin = Begin(started_at, inflight, self._first.wait(timing, started_at, since))
        return self._follow(self._search.begun(begin, self._room(inflight, now), now), now)

    def on_end(
        self,
        outcome: Outcome,
        *,
        started_at: float,
        inflight: int,
        now: float,
        work: float = 0.0,
    ) -> Decision | None:
        """Fold in how a request ended."""
        self._set_clock(now)
        if started_at - self._active_at > _IDLE_S:
            self._cold = True
        self._active_at = now
        seconds = now - started_at
        if outcome is Outcome.OK:
            return self._answered(Reading(work, seconds, inflight), now)
        why = _OVERLOAD.get(outcome)
        if why is None or not self._cut_at < started_at <= now:
            return None
        if outcome is Outcome.TIMEOUT and seconds < _LATE * self._search.usual_s:
            return None
        self._strain.loss(seconds)
        served = self._strain.served(self._decision.limit, self._search.usual_s, now)
        return None if served is None else self._cut(why, now, served)

    def on_signal(self, signal: Signal | None, *, now: float) -> Decision | None:
        """Fold in a scrape; one that failed says nothing, and lets the last one grow old."""
        self._set_clock(now)
        if signal is None:
            return None
        self._engine.hear(signal, now)
        drained = now - self._lowered_at >= self._search.usual_s
        if drained and self._engine.preempts(now, last_lowered_at=self._lowered_at):
            return self._cut(_PREEMPTS, now)
        if self._engine.keeps_queueing(now, last_lowered_at=self._lowered_at):
            self._search.suspect(now)
        return None

    def restart(self, *, now: float, limit: int | None = None) -> Decision | None:
        """Begin again at the floor, or at what others like it do with."""
        self._set_clock(now)
        self._cold = True
        self._engine.forget()
        self._first.forget()
        self._cut_at = now
        self._strain.begin(now)
        begin = begin_again(limit, self._floor, self._ceiling)
        self._search.begin(begin.limit, now)
        return self._move(begin.limit, begin.reason)

    def resize(self, *, floor: int, ceiling: int) -> Decision | None:
        """Move the bounds; what was learned stays."""
        self._ceiling = max(1, ceiling)
        self._floor = max(1, min(floor, self._ceiling))
        limit = min(max(self._decision.limit, self._floor), self._ceiling)
        if limit == self._decision.limit:
            return None
        self._search.hold(limit, self._now)
        return self._move(limit, f"resized: between {self._floor} and {self._ceiling}")

    def _set_clock(self, now: float) -> None:
        if now < self._now:  # it jumped back: nothing may lie in the future
            self._active_at = min(self._active_at, now)
            self._cut_at = min(self._cut_at, now)
            self._lowered_at = min(self._lowered_at, now)
            self._barred_until = min(self._barred_until, now)
            self._strain.begin(now)
            self._engine.turn_back(now)
            self._first.turn_back(now)
            self._search.turn_back(now)
        self._now = now

    def _answered(self, reading: Reading, now: float) -> Decision | None:
        if not 0 < reading.seconds < inf or not 0 <= reading.work < inf:
            return None
        self._strain.answer(reading.inflight)
        if self._cold:
            # The first answer pays for loading and compiling, as may all that ran beside it.
            self._cold = False
            self._search.skip(now)
            return None
        room = self._room(reading.inflight, now)
        return self._follow(self._search.ended(reading, room, now), now)

    def _follow(self, step: Step | None, now: float) -> Decision | None:
        """Go where the search says."""
        if step is None:
            return None
        self._strain.begin(now)  # what was in flight under another limit says nothing of this one
        return self._move(step.limit, step.why)

    def _room(self, inflight: int, now: float) -> Room:
        """Where the limit may go now."""
        held = self._engine.holds_growth(now)
        if held is not None:
            return Room(self._floor, self._decision.limit, held, may_pass=True)
        room = Room(self._floor, self._ceiling, "at the ceiling")
        if now < self._barred_until and self._bar < room.most:
            room = Room(
                self._floor, self._bar, f"below {self._bar + 1} for a while: {self._barred}"
            )
        fits = self._engine.most(inflight, now)
        return Room(self._floor, fits, "KV cache") if fits < room.most else room

    def _cut(self, why: str, now: float, served: float = 0.0) -> Decision | None:
        """Cut by a factor, by a larger one while that is not enough, and stay lower for a while."""
        limit = self._decision.limit
        first_s, most_s = _BARRED_S[why]
        factor = _TRIM if why == _PREEMPTS else self._settings.backoff
        if now >= self._barred_until:
            again = now < self._barred_until + self._barred_s
            self._barred_s = min(2 * self._barred_s, most_s) if again else first_s
        elif why != _PREEMPTS:
            factor = _ESCALATED
        self._cut_at = now
        self._barred_until = now + self._barred_s
        self._barred = why
        before = self._search.grown_from
        to = min(int(max(limit * factor, served, before)), limit - 1)
        to = max(to, self._floor)
        self._bar = to if before else max(self._floor, limit - 1)
        self._search.hold(to, now)
        return self._move(to, f"cut: {why}" if to < limit else f"held: at the floor; {why}")

    def _move(self, limit: int, reason: str) -> Decision | None:
        before = self._decision.limit
        self._decision = Decision(limit, reason)
        if limit < before:
            self._lowered_at = self._now
        return None if limit == before else self._decision
