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
# They have been seen to trail by 18 s after a burst; where more is at stake, wait for that.
_LONG_PATIENCE_S = 25.0
_LONG = 0.5  # of what runs

# A KV cache that is fuller than this has no room for what running sequences still generate.
_FULL = 0.9
_UNBOUNDED = 2**31


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
        self._kv_usage: float | None = None
        self._running: float | None = None
        self._preemptions: float | None = None
        self._preempted = False  # since the scrape before the last one
        self._long_queues = 0  # scrapes in a row that told of one
        self._answered_at = -inf  # when a cut answered the queue that it reports

    def hear(self, signal: Signal, now: float) -> None:
        """Take in a scrape; an engine that sleeps or loads is not congested."""
        self._at = min(signal.at, now)
        self._saturated = signal.state is EngineState.AWAKE and signal.saturated is True
        if not self._saturated:
            self._answered_at = -inf
        self._kv_usage = signal.kv_usage
        self._running = signal.running
        before, after = self._preemptions, signal.preemptions
        self._preemptions = after
        # A counter that went backwards belongs to an engine that was started anew.
        self._preempted = before is not None and after is not None and after > before
        self._long_queues = self._long_queues + 1 if _has_long_queue(signal) else 0

    def calls_for_cut(self, now: float, *, last_cut_at: float) -> bool:
        """Say whether it reports a queue that the last cut can not have been the answer to."""
        return (
            self._at is not None
            and self._saturated
            and last_cut_at < self._at
            and now - self._at <= self._stale_s
            and now - self._answered_at >= _PATIENCE_S
        )

    def preempts(self, now: float, *, last_lowered_at: float) -> bool:
        """Say whether it has preempted, and the limit has not been lowered since."""
        return self._preempted and self._is_news(now, last_lowered_at)

    def keeps_queueing(self, now: float, *, last_lowered_at: float) -> bool:
        """Say whether much waits for capacity again and again, at the same limit."""
        return self._long_queues > 1 and self._is_news(now, last_lowered_at)

    def most(self, inflight: int, now: float) -> int:
        """Return how many may be in flight until its KV cache is full, by and large."""
        usage = self._kv_usage
        if (
            usage is None
            or not 0 < usage <= 1
            or self._at is None
            or now - self._at > self._stale_s
        ):
            return _UNBOUNDED
        return max(1, int((self._running or inflight) * _FULL / usage))

    def _is_news(self, now: float, last_lowered_at: float) -> bool:
        """Whether what it reports can not have been answered by lowering the limit."""
        return (
            self._at is not None
            and now - self._at <= self._stale_s
            and self._at - last_lowered_at >= _LONG_PATIENCE_S
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


def _has_long_queue(signal: Signal) -> bool:
    """Whether the engine says that much waits, and that what waits does so for capacity."""
    waiting = signal.waiting if signal.waiting_capacity is None else signal.waiting_capacity
    if signal.saturated is not True or waiting is None or signal.running is None:
        return False
    return signal.waiting_unit == "requests" and waiting > _LONG * signal.running
