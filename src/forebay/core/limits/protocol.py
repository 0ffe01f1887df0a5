"""What a limit law is: it turns readings of one endpoint into that endpoint's in-flight limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from forebay.core.model import Decision

if TYPE_CHECKING:
    from forebay.core.model import Outcome, Signal, Timing


class Limit(Protocol):
    """A limit law. Pure: no clock, no randomness; `now` is an argument.

    Every method that may move the limit returns the new `Decision`, or None when the limit stayed
    (its reason may be another one now). A reason begins with a short stable code and a colon, or is
    that code alone: ``grew``, ``cut``, ``held``, ``start``, ``restart``, ``resized``, ``fixed``.
    `inflight` is the endpoint's in-flight count just before the request in question ends (for
    `on_timing`: at that moment), so that the maximum over a window is exact.
    """

    @property
    def decision(self) -> Decision:
        """The limit that holds now, and why."""

    def on_timing(
        self, timing: Timing, *, started_at: float, inflight: int, now: float
    ) -> Decision | None:
        """Fold in one latency reading of a request that was admitted at `started_at`."""

    def on_end(
        self,
        outcome: Outcome,
        *,
        started_at: float,
        inflight: int,
        now: float,
        work: float = 0.0,
    ) -> Decision | None:
        """Fold in how a request ended (called once for each, after its last timing).

        `work` is what was done (`Ending.work`); 0 while not known.
        """

    def on_signal(self, signal: Signal | None, *, now: float) -> Decision | None:
        """Fold in a scrape of the engine's own metrics; None means that the scrape failed."""

    def restart(self, *, now: float, limit: int | None = None) -> Decision | None:
        """Begin again, if the law adapts: at the floor, since the endpoint was away.

        Or at `limit`, as far as the bounds allow: it is new, and others like it do with that.
        """

    def resize(self, *, floor: int, ceiling: int) -> Decision | None:
        """Move the bounds, live; what is in flight is never revoked."""


def begin_again(limit: int | None, floor: int, ceiling: int) -> Decision:
    """Return what an adapting law begins again with (see `Limit.restart`)."""
    if limit is None or limit <= floor:
        return Decision(floor, "restart: at the floor")
    return Decision(min(limit, ceiling), "start: as the model's other endpoints")
