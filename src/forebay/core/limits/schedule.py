"""When a search tries more in flight, and when less: the more seldom, the less it pays."""

from __future__ import annotations

from math import inf

DEEP, SHALLOW = 0.5, 0.7  # how far down, as a part of the limit

# Usual times between two tries, at first and at most.
_PROBE_GAP, _MAX_PROBE_GAP = 4.0, 64.0
_TEST_GAP, _MAX_TEST_GAP = 32.0, 1024.0


class Schedule:
    """When to try.

    Attributes:
        depth: how far down the next try of less goes, at most.
        suspected: somebody says that the engine queues.
    """

    def __init__(self) -> None:
        self._probe_at = self._test_at = -inf
        self.begin()

    def begin(self) -> None:
        """Be as eager as at first."""
        self._probe_gap, self._test_gap, self.depth = _PROBE_GAP, _TEST_GAP, DEEP
        self.suspected = False

    def turn_back(self, now: float) -> None:
        """Follow a clock that has jumped back to `now`."""
        self._probe_at = min(self._probe_at, now)
        self._test_at = min(self._test_at, now)

    def moved(self, now: float, usual_s: float) -> None:
        """Count the time to the next try of more from now."""
        self.suspected = False
        self._probe_at = now + self._probe_gap * usual_s

    # -- more --------------------------------------------------------------------------------------

    def more_is_due(self, now: float) -> bool:
        """Whether it is time to try more."""
        return now >= self._probe_at

    def more_paid(self) -> None:
        """More did more: go on trying."""
        self._probe_gap = _PROBE_GAP

    def more_did_not_pay(self) -> None:
        """More did as much as before."""
        self._probe_gap = min(2 * self._probe_gap, _MAX_PROBE_GAP)

    def try_more_now(self, now: float) -> None:
        """Perhaps even more does more."""
        self._probe_at = now

    # -- less --------------------------------------------------------------------------------------

    def less_is_due(self, now: float) -> bool:
        """Whether it is time to try less, if there is reason to."""
        return now >= self._test_at

    def suspect(self, now: float) -> None:
        """Try less as soon as possible."""
        self.suspected = True
        self._test_at = min(self._test_at, now)

    def try_less(self, now: float, usual_s: float) -> None:
        """It is tried; count the time to the next one."""
        self._test_at = now + self._test_gap * usual_s

    def less_did_as_much(self, now: float) -> None:
        """Less in flight did as much: perhaps even less does."""
        self._test_gap, self._probe_gap = _TEST_GAP, _PROBE_GAP
        self._test_at = now

    def less_did_less(self, now: float, usual_s: float) -> None:
        """Try again later: next not so far down, as the knee may lie in between."""
        if self.depth == DEEP:
            self.depth = SHALLOW
        else:
            self.depth = DEEP
            self._test_gap = min(2 * self._test_gap, _MAX_TEST_GAP)
        self._test_at = now + self._test_gap * usual_s
