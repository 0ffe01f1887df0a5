"""Refusals for load and time-outs: when do they call for a lower limit?

A request that is refused at random, or whose caller would not wait, says nothing of how many should
be in flight. So what is looked at is how many of those in flight *are served*: the mean in-flight
count at answers, less what refusals and time-outs occupied meanwhile. If that is much less than the
limit, or nothing is answered at all, the limit is more than the endpoint takes.
"""

from __future__ import annotations

from math import inf

_SERVED = 0.9  # of the limit
_FEWEST = 3  # ends


class Strain:
    """What ended since the last cut, or since it was last looked at."""

    def __init__(self) -> None:
        self.begin(-inf)

    def begin(self, now: float) -> None:
        """Begin to count: a cut was made, or it has been looked at."""
        self.since = now
        self._ends = 0
        self._answers = 0
        self._inflight = 0
        self._lost_s = 0.0

    def answer(self, inflight: int) -> None:
        """A request was answered."""
        self._ends += 1
        self._answers += 1
        self._inflight += inflight

    def loss(self, seconds: float) -> None:
        """A request was refused or timed out, after so long."""
        self._ends += 1
        self._lost_s += seconds

    def served(self, limit: int, drain_s: float, now: float) -> float | None:
        """Say how many are served, if the limit is more than that; to be asked after each loss.

        Args:
            limit: in force.
            drain_s: how long what was in flight at the last cut takes to end.
            now: seconds.

        Returns:
            None if there is no need for a cut, or it is too early to tell.
        """
        passed_s = now - self.since
        if self._ends < _FEWEST or passed_s < drain_s:
            return None
        served = 0.0
        if self._answers:
            served = self._inflight / self._answers - self._lost_s / max(passed_s, 1e-9)
        self.begin(now)
        return served if served < _SERVED * limit else None
