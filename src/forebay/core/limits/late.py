"""First tokens that are late one and all: for want of room, or is that what they take now?

Who waits for room waits for what is ahead: with fewer in flight that is less, in proportion at
least. What stays as late with fewer in flight is late for another reason: prompts that no prefix
cache knows any more, an engine with other settings, pictures in a prompt.
"""

from __future__ import annotations

_READINGS = 8  # in the running means
_FEWER = 0.5  # of the most that was in flight: enough to tell by


class Late:
    """Late first tokens of about one size, with none in between that was not.

    Attributes:
        steps: that they take now, on average.
    """

    __slots__ = ("_alike", "_count", "_inflight", "_most_inflight", "_most_steps", "steps")

    def __init__(self) -> None:
        self._count = self._alike = 0
        self._inflight = self.steps = 0.0
        self._most_inflight = self._most_steps = 0.0

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, steps: float, inflight: int) -> bool:
        """Take in one; return whether they are late for another reason than what is in flight."""
        self._count += 1
        gain = 1 / min(self._count, _READINGS)
        self.steps += gain * (steps - self.steps)
        self._inflight += gain * (inflight - self._inflight)
        if self._count < _READINGS:
            return False
        self._most_inflight = max(self._most_inflight, self._inflight)
        fewer = self._inflight / self._most_inflight
        if fewer > _FEWER:
            # The most: where many come in at once, the first of them wait least.
            self._most_steps = max(self._most_steps, self.steps)
            self._alike = 0
            return False
        # Nearer to as much than to in proportion; more would be a queue that still grows.
        is_alike = abs(self.steps / self._most_steps - 1) < (1 - fewer) / 2
        self._alike = self._alike + 1 if is_alike else 0
        return self._alike >= _READINGS
