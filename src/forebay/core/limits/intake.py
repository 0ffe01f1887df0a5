"""What is read at the limit in force: which requests count, and when it is time to look."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from forebay.core.limits.first import Begins
from forebay.core.limits.pace import Level

if TYPE_CHECKING:
    from forebay.core.limits.first import Begin
    from forebay.core.limits.pace import Reading

_IN_USE, _MORE = 0.9, 1.2  # in flight, by the limit; by the limit below
# Readings that a change is looked for in, and what they take at least.
_FRESH, _FRESH_S = 16, 1.0


class Intake:
    """Readings at one limit, in lots.

    Args:
        limit: the limit.
        now: when it came into force, seconds.
        settles_s: what begins so soon after that sees the move itself, and is left out.

    Attributes:
        lot: what has been read since `watch`.
        begins: answers that have begun since the limit came into force.
    """

    def __init__(self, limit: int, now: float = -inf, settles_s: float = 0.0) -> None:
        self.lot = Level(limit)
        self._limit = limit
        self._counts_above = _IN_USE * limit
        self._counts_from = now + settles_s
        self._since = now
        self._read = 0
        self.begins = Begins(limit)
        self._next_look = limit

    @property
    def pools(self) -> float:
        """How many times over all that is in flight has been read in this lot."""
        return self._read / self._limit

    def in_use(self, inflight: float) -> bool:
        """Whether so many in flight are as good as all that the limit allows."""
        return inflight >= _IN_USE * self._limit

    def is_too_short(self, now: float) -> bool:
        """Whether this lot says nothing yet of how things change."""
        return now - self._since < _FRESH_S

    def begun(self, begin: Begin) -> bool:
        """Take in an answer that begins; return whether it counts."""
        if begin.started_at < self._counts_from or begin.inflight < self._counts_above:
            return False
        self.begins.add(begin.wait_s)
        return True

    def ended(self, reading: Reading, now: float) -> bool:
        """Take in a request that was answered; return whether it counts."""
        if reading.inflight < self._counts_above or now - reading.seconds < self._counts_from:
            return False
        self.lot.readings.append(reading)
        self._read += 1
        return True

    def is_time(self) -> bool:
        """Whether it is time to look; after that, it is again when there is more to see."""
        if self._read < self._next_look:
            return False
        self._next_look = self._read + max(1, self._read // 4)
        return True

    def watch(self, now: float) -> None:
        """Begin a new lot, to see whether anything changes."""
        self.lot = Level(self._limit)
        self._since = now
        self._read = 0
        self._next_look = max(_FRESH, self._limit)

    def look_after(self, readings: int) -> None:
        """Look for the first time after so many."""
        self._next_look = readings

    def count_from_below(self, limit: int) -> None:
        """Count what is a little more than a lower limit allowed.

        The step up was room for more that was asked for, not demand: a part of it is enough.
        """
        self._counts_above = min(self._counts_above, _MORE * limit)

    def count_like(self, level: Level) -> None:
        """Count what is as much in use as another level was."""
        if level.readings:
            self._counts_above = _IN_USE * min(self._limit, level.inflight)

    def skip(self, now: float) -> None:
        """Leave out what is in flight now."""
        self._counts_from = now

    def turn_back(self, now: float) -> None:
        """Follow a clock that has jumped back to `now`."""
        self._counts_from = min(self._counts_from, now)
        self._since = min(self._since, now)
