"""The law that never moves: the ceiling is the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.model import Decision

if TYPE_CHECKING:
    from forebay.core.model import Outcome, Signal, Timing


class Fixed:
    """Admit up to the ceiling, whatever is measured. Implements `protocol.Limit`.

    Args:
        floor: slots that the endpoint can always reach; not used by this law.
        ceiling: the limit; below 1 it counts as 1, since no endpoint is held at zero.
    """

    def __init__(self, floor: int, ceiling: int) -> None:
        self._decision = Decision(1, "fixed")
        self.resize(floor=floor, ceiling=ceiling)

    @property
    def decision(self) -> Decision:
        """The limit that holds now, and why."""
        return self._decision

    def on_timing(
        self,
        timing: Timing,
        *,
        started_at: float,
        inflight: int,
        now: float,
    ) -> None:
        """Ignore the reading."""

    def on_end(
        self,
        outcome: Outcome,
        *,
        started_at: float,
        inflight: int,
        now: float,
        work: float = 0.0,
    ) -> None:
        """Ignore the outcome."""

    def on_signal(self, signal: Signal | None, *, now: float) -> None:
        """Ignore the scrape."""

    def restart(self, *, now: float, limit: int | None = None) -> None:
        """Stay as it is: the breaker's own ramp protects an endpoint that comes back."""

    def resize(self, *, floor: int, ceiling: int) -> Decision | None:  # noqa: ARG002
        """Move to the new ceiling."""
        limit = max(1, ceiling)
        if limit == self._decision.limit:
            return None
        self._decision = Decision(limit, "fixed")
        return self._decision
