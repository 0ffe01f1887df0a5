"""What an engine's own metrics mean for a limit: they only ever tighten."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from forebay.core.model import EngineState

if TYPE_CHECKING:
    from forebay.core.model import Signal

# Engines' gauges trail by 3 to 6 s (vLLM), so a queue that a cut has ended is reported a while
# longer. Latency, which does not lag, goes on cutting meanwhile.
_PATIENCE_S = 10.0


class EngineWord:
    """The last thing that an engine said of its queue.

    Nothing at all, from an engine that never reported, means nothing: unknown is not zero.

    Args:
        stale_s: age from which it holds growth and is good for nothing else.
    """

    def __init__(self, stale_s: float) -> None:
        self._stale_s = stale_s
        self.forget()

    def forget(self) -> None:
        """Be as if it had never reported."""
        self._at: float | None = None
        self._saturated = False
        self._answered_at = -inf  # when a cut answered the queue that it reports

    def hear(self, signal: Signal, now: float) -> None:
        """Take in a scrape; an engine that sleeps or loads is not congested."""
        self._at = min(signal.at, now)
        self._saturated = signal.state is EngineState.AWAKE and signal.saturated is True
        if not self._saturated:
            self._answered_at = -inf

    def calls_for_cut(self, now: float, *, last_cut_at: float) -> bool:
        """Say whether it reports a queue that the last cut can not have been the answer to."""
        return (
            self._at is not None
            and self._saturated
            and last_cut_at < self._at
            and now - self._at <= self._stale_s
            and now - self._answered_at >= _PATIENCE_S
        )

    def answer(self, now: float) -> None:
        """Note that its queue was answered by a cut."""
        self._answered_at = now

    def holds_growth(self, now: float) -> str | None:
        """Return why nothing may grow, if so."""
        if self._at is not None and now - self._at > self._stale_s:
            return "engine metrics are stale"
        return "engine queue" if self._saturated else None

    def turn_back(self, now: float) -> None:
        """Follow a clock that has jumped back to `now`."""
        self._at = None if self._at is None else min(self._at, now)
        self._answered_at = min(self._answered_at, now)
