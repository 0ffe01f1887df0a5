"""What the reference laws share: a limit between two bounds, moved by end-to-end latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.model import Decision, Outcome

if TYPE_CHECKING:
    from forebay.core.model import Signal, Timing

DROPPED = frozenset({Outcome.CONGESTION, Outcome.TIMEOUT})


class Reference:
    """A `Limit` whose subclasses say what follows from each request (`answered`, `dropped`).

    Args:
        floor: the least.
        ceiling: the most.
        start: where it begins, within the bounds.
    """

    def __init__(self, floor: int, ceiling: int, start: float) -> None:
        self.floor, self.ceiling = floor, ceiling
        self.start = start
        self.exact = start
        self._decision = Decision(0, "start")
        self._move()

    @property
    def decision(self) -> Decision:
        """The limit that holds now, and why."""
        return self._decision

    def on_timing(self, timing: Timing, *, started_at: float, inflight: int, now: float) -> None:
        """Ignore it: these laws know end-to-end latency alone."""

    def on_end(
        self,
        outcome: Outcome,
        *,
        started_at: float,
        inflight: int,
        now: float,
        work: float = 0.0,
    ) -> Decision | None:
        """Let the law see how it ended."""
        del work
        if outcome is Outcome.OK:
            self.answered(now - started_at, inflight, now)
        elif outcome in DROPPED:
            self.dropped(inflight, now)
        return self._move()

    def on_signal(self, signal: Signal | None, *, now: float) -> Decision | None:
        """Let the law see what the engine says."""
        if signal is not None:
            self.told(signal, now)
        return self._move()

    def restart(self, *, now: float, limit: int | None = None) -> Decision | None:
        """Begin again."""
        del now, limit
        self.exact = self.start
        return self._move()

    def resize(self, *, floor: int, ceiling: int) -> Decision | None:
        """Move the bounds."""
        self.floor, self.ceiling = floor, ceiling
        return self._move()

    def answered(self, seconds: float, inflight: int, now: float) -> None:
        """A request was answered."""

    def dropped(self, inflight: int, now: float) -> None:
        """A request was refused for load, or timed out."""

    def told(self, signal: Signal, now: float) -> None:
        """The engine reported."""

    def _move(self) -> Decision | None:
        self.exact = min(max(self.exact, self.floor), self.ceiling)
        limit = int(self.exact)
        if limit == self._decision.limit:
            return None
        self._decision = Decision(limit, "moved")
        return self._decision
