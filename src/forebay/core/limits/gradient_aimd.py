"""Grow while latency stays near its baseline, cut when it leaves it.

Theory of operation
-------------------
The gradient is baseline / observed: 1 on an endpoint that does not queue, 0.5 where requests take
twice as long as they should. At `target` or above, the limit grows; below it, it is multiplied with
`backoff`. What makes that safe:

* A judgement uses only requests admitted since the limit last moved, so it is about *this* limit.
  There is therefore one cut per drain: until what was in flight has finished, there is nothing to
  judge.
* Each kind of reading has its own baselines and its own window; the worst kind decides.
* Growth needs the limit to have been used, and a cut needs readings that noise cannot explain. A
  window that is neither good nor certainly bad goes on until it is.
* Until the first cut the limit doubles; after it, it grows by a tenth, at least by one.
* Refusals for load, time-outs and the engine's own queue cut without waiting for a window, also
  once per drain. They, and silence from an engine that used to report, hold growth. Nothing ever
  goes below the floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log2
from typing import TYPE_CHECKING

from forebay.core.limits.baseline import Baseline
from forebay.core.limits.engine import EngineWord
from forebay.core.limits.protocol import begin_again
from forebay.core.limits.window import Latency, Window
from forebay.core.model import Decision, Outcome, TimingKind
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.core.model import Signal, Timing

_IN_USE = 0.9
_GROWTH = 0.1
_IDLE_S = 30.0

_OVERLOAD = {Outcome.TIMEOUT: "a request timed out", Outcome.CONGESTION: "refused for load"}


@dataclass(frozen=True, slots=True)
class GradientSettings:
    """How the law weighs what it sees.

    Args:
        target: baseline / observed latency from which the limit may grow, in (0, 1).
        window: readings that a judgement needs at least, ≥ 2.
        backoff: what a cut multiplies the limit with, in (0, 1).
        stale_s: age from which an engine's metrics hold growth.

    Raises:
        ConfigError: if a value makes no sense.
    """

    target: float = 0.9
    window: int = 16
    backoff: float = 0.8
    stale_s: float = 15.0

    def __post_init__(self) -> None:
        for name in ("target", "backoff"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be between 0 and 1")
        if self.window < 2:  # noqa: PLR2004 - the smallest number that has a middle
            raise ConfigError(f"window is {self.window}; it must be at least 2")
        if self.stale_s <= 0:
            raise ConfigError(f"stale_s is {self.stale_s}; it must be above 0")


class GradientAimd:
    """Additive increase, multiplicative decrease on the latency gradient (`protocol.Limit`).

    Args:
        floor: where it starts, and what it never goes below; below 1 it counts as 1.
        ceiling: what it never goes above; where it is below the floor, it wins.
        settings: see `GradientSettings`.
    """

    def __init__(self, floor: int, ceiling: int, settings: GradientSettings | None = None) -> None:
        self._settings = settings or GradientSettings()
        self._tolerance = -log2(self._settings.target)
        self._ceiling = max(1, ceiling)
        self._floor = max(1, min(floor, self._ceiling))
        self._exact = float(self._floor)  # integer limits alone would lose fractions of a step
        self._decision = Decision(self._floor, "start: at the floor")
        self._doubling = True
        self._baselines = {kind: Baseline() for kind in TimingKind}
        self._window = Window(self._settings.window, self._floor, -inf)
        self._moved_at = -inf
        self._cut_at = -inf
        self._ended_since_cut = 0
        self._cold = True
        self._active_at = inf
        self._now = -inf
        self._engine = EngineWord(self._settings.stale_s)

    @property
    def decision(self) -> Decision:
        """The limit that holds now, and why."""
        return self._decision

    def on_timing(
        self, timing: Timing, *, started_at: float, inflight: int, now: float
    ) -> Decision | None:
        """Fold in one latency reading of a request that was admitted at `started_at`."""
        self._set_clock(now)
        if started_at - self._active_at > _IDLE_S:
            self._cold = True
        self._active_at = now
        window = self._window
        window.see(timing.kind)
        if self._cold:
            # The first answer after idling pays for loading and compiling, as may all that ran
            # beside it.
            self._cold = False
            self._moved_at = now
            return None
        if not self._moved_at < started_at <= now or not 0 < timing.seconds < inf:
            return None
        window.peak = max(window.peak, inflight)
        excess = self._baselines[timing.kind].read(
            timing.seconds, timing.size, at_floor=inflight <= self._floor, now=now
        )
        if excess is None or not window.add(timing.kind, excess, now):
            return None
        return self._judge(timing.kind, now)

    def on_end(
        self,
        outcome: Outcome,
        *,
        started_at: float,
        inflight: int,  # noqa: ARG002 - the protocol's signature
        now: float,
        work: float = 0.0,  # noqa: ARG002
    ) -> Decision | None:
        """Fold in how a request ended: refusals for load and time-outs cut."""
        self._set_clock(now)
        self._active_at = now
        if not self._cut_at < started_at <= now:
            return None
        self._ended_since_cut += 1
        why = _OVERLOAD.get(outcome)
        return None if why is None else self._cut(why, now)

    def on_signal(self, signal: Signal | None, *, now: float) -> Decision | None:
        """Fold in a scrape; one that failed says nothing, and lets the last one grow old."""
        self._set_clock(now)
        if signal is None:
            return None
        self._engine.hear(signal, now)
        if not self._drained or not self._engine.calls_for_cut(now, last_cut_at=self._cut_at):
            return None
        self._engine.answer(now)
        return self._cut("engine queue", now)

    def restart(self, *, now: float, limit: int | None = None) -> Decision | None:
        """Begin again at the floor, or at what others like it do with.

        Baselines are kept, but may rise anew.
        """
        self._set_clock(now)
        self._cold = True
        self._doubling = True
        self._cut_at = now
        self._ended_since_cut = 0
        self._engine.forget()
        for baseline in self._baselines.values():
            baseline.forgive()
        begin = begin_again(limit, self._floor, self._ceiling)
        return self._move(begin.limit, begin.reason, now)

    def resize(self, *, floor: int, ceiling: int) -> Decision | None:
        """Move the bounds; what was learned stays."""
        self._ceiling = max(1, ceiling)
        self._floor = max(1, min(floor, self._ceiling))
        bounded = min(max(self._exact, self._floor), self._ceiling)
        if bounded == self._exact:
            return None
        return self._move(bounded, f"resized: between {self._floor} and {self._ceiling}", self._now)

    @property
    def _drained(self) -> bool:
        """Whether what was in flight at the last cut has, by and large, finished."""
        return self._cut_at == -inf or self._ended_since_cut >= self._decision.limit

    def _set_clock(self, now: float) -> None:
        if now < self._now:  # it jumped back: nothing may lie in the future
            self._window.began_at = min(self._window.began_at, now)
            self._moved_at = min(self._moved_at, now)
            self._cut_at = min(self._cut_at, now)
            self._active_at = min(self._active_at, now)
            self._engine.turn_back(now)
        self._now = now

    def _judge(self, kind: TimingKind, now: float) -> Decision | None:
        verdict = self._window.judge(kind, self._tolerance)
        if verdict is None:
            return None
        if verdict.latency is Latency.HIGH:
            return self._cut(verdict.why, now)
        if verdict.latency is Latency.GOOD:
            return self._grow(now)
        self._hold(verdict.why, now)
        return None

    def _grow(self, now: float) -> Decision | None:
        why_not = self._engine.holds_growth(now) or self._unused()
        if why_not is not None:
            self._hold(why_not, now)
            return None
        step = self._exact if self._doubling else max(1.0, _GROWTH * self._exact)
        return self._move(
            min(self._exact + step, self._ceiling),
            f"grew: latency within {self._settings.target:g} of baseline, in use",
            now,
        )

    def _unused(self) -> str | None:
        """Return why more room would be of no use, if so."""
        limit, peak = self._decision.limit, self._window.peak
        if peak < _IN_USE * limit:
            return f"not in use, at most {peak} of {limit} in flight"
        return "at the ceiling" if self._exact >= self._ceiling else None

    def _hold(self, why: str, now: float) -> None:
        """Stay, and look at what comes next."""
        self._decision = Decision(self._decision.limit, f"held: {why}")
        self._begin_window(now)

    def _cut(self, why: str, now: float) -> Decision | None:
        self._doubling = False
        self._cut_at = now
        self._ended_since_cut = 0
        limit = self._decision.limit
        if limit <= self._floor:
            return self._move(self._floor, f"held: at the floor; {why}", now)
        # From the integer that was in force: from 2.9, a cut to 2.3 would change nothing.
        return self._move(max(self._floor, limit * self._settings.backoff), f"cut: {why}", now)

    def _move(self, exact: float, reason: str, now: float) -> Decision | None:
        before = self._decision.limit
        self._exact = exact
        self._decision = Decision(int(exact + 1e-9), reason)
        self._moved_at = now
        self._begin_window(now)
        return None if self._decision.limit == before else self._decision

    def _begin_window(self, now: float) -> None:
        self._window = Window(self._settings.window, self._decision.limit, now)
