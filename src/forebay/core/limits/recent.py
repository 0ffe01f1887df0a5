"""The last requests at one limit, to notice at once that they get faster."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from forebay.core.limits.pace import Level

if TYPE_CHECKING:
    from forebay.core.limits.pace import Line, Reading

# Readings and seconds that it takes to tell, besides a pool.
_FEWEST, _SPAN_S = 16, 0.5
_EVERY = 4  # looks in that time
_FASTER = 0.93  # of what was expected, from which on it is worth a closer look


class Recent:
    """The last pool of requests, beside what was expected of them.

    Args:
        limit: in force.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._fewest = max(_FEWEST, limit)
        self._readings: deque[tuple[float, Reading]] = deque()
        self._looked_at = 0.0
        self._unseen = 0

    def add(self, reading: Reading, expected: Line, now: float) -> Level | None:
        """Take in a request; return the last ones when they took less than expected, on average."""
        readings = self._readings
        readings.append((now, reading))
        self._unseen += 1
        while len(readings) > self._fewest and readings[1][0] <= now - _SPAN_S:
            readings.popleft()
        enough = len(readings) >= self._fewest and readings[0][0] <= now - _SPAN_S
        if not enough or _EVERY * self._unseen < len(readings):
            return None
        self._unseen = 0
        taken_s = sum(reading.seconds for _, reading in readings)
        expected_s = sum(expected.at(reading.work) for _, reading in readings)
        if taken_s > _FASTER * expected_s:
            return None
        level = Level(self._limit)
        level.readings.extend(reading for _, reading in readings)
        return level
