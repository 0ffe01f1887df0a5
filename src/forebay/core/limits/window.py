"""Readings of one kind since the limit last moved, and what they say together."""

from __future__ import annotations

from collections import deque
from math import sqrt
from statistics import median

MAX_READINGS = 256

# One reading counts as twice or half as long as expected at most, so that few cannot decide.
_CLIP = 1.0

# A busy endpoint is looked at thousands of times an hour: chance must be rarer than that.
_CERTAIN = 4.0  # standard errors; few readings tell their own scatter badly, hence more of them


class Window:
    """Excesses (see `baseline`) of the requests that were admitted under the present limit.

    Args:
        size: readings after which to look at it for the first time.
    """

    __slots__ = ("_excesses", "count", "next_look", "seen")

    def __init__(self, size: int) -> None:
        self._excesses: deque[float] = deque(maxlen=MAX_READINGS)
        self.count = 0  # readings that were added
        self.seen = 0  # readings of this kind in all, older requests' included
        self.next_look = size

    def add(self, excess: float) -> bool:
        """Add one; return whether it is time to look."""
        self._excesses.append(excess)
        self.count += 1
        return self.count >= self.next_look

    @property
    def typical(self) -> float:
        """The median excess, for people to read."""
        return median(self._excesses)

    def weigh(self) -> tuple[float, float]:
        """Return the mean excess, and the part of it that chance does not explain.

        The mean, not the median: where a server works in batches, a quarter of the requests may
        take twice as long while half of them are as quick as ever.
        """
        clipped = [min(max(excess, -_CLIP), _CLIP) for excess in self._excesses]
        n = len(clipped)  # two at least
        mean = sum(clipped) / n
        variance = sum((excess - mean) ** 2 for excess in clipped) / (n - 1)
        return mean, mean - _CERTAIN * (1 + 4 / n) * sqrt(variance / n)
