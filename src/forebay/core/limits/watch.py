"""What is known of a limit that holds, to notice at once when requests get faster."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from forebay.core.limits.pace import Level, line

if TYPE_CHECKING:
    from forebay.core.limits.pace import Reading

# Readings, besides a pool, and seconds that it takes to tell; how often to look in that time.
_FEWEST, _SPAN_S, _LOOKS = 16, 0.5, 8
_FASTER = 0.93  # of what was expected: worth a closer look


class Watch:
    """A limit that holds.

    Requests that get faster mean room, and every moment counts then. So the last pool of them is
    looked at all the time, cheaply; that they are faster is for others to judge.

    Args:
        level: what is known of the limit.

    Attributes:
        level: the same, and what has been read since.
        slow: the last lot was slower than that.
    """

    def __init__(self, level: Level) -> None:
        self.level = level
        self.slow = False
        self._fewest = max(_FEWEST, level.limit)
        self._recent: deque[tuple[float, Reading]] = deque()
        self._unseen = 0
        self._draw()

    def extend(self, lot: Level) -> None:
        """Take a lot for what is usual."""
        self.level.readings.extend(lot.readings)
        self._draw()

    def seem_faster(self, reading: Reading, now: float) -> Level | None:
        """Take in a request; return the last ones if they took less than expected, on average."""
        recent = self._recent
        recent.append((now, reading))
        self._unseen += 1
        while len(recent) > self._fewest and recent[1][0] <= now - _SPAN_S:
            recent.popleft()
        expected = self._line
        if expected is None or len(recent) < self._fewest or recent[0][0] > now - _SPAN_S:
            return None
        if _LOOKS * self._unseen < len(recent):
            return None
        self._unseen = 0
        taken_s = sum(each.seconds for _, each in recent)
        if taken_s > _FASTER * sum(expected.at(each.work) for _, each in recent):
            return None
        lot = Level(self.level.limit)
        lot.readings.extend(each for _, each in recent)
        return lot

    def turn_back(self) -> None:
        """Follow a clock that has jumped back."""
        self._recent.clear()

    def _draw(self) -> None:
        self._line = line(self.level) if self.level.pools >= 1 else None
