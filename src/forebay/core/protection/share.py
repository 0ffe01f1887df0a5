"""The law of protection: how many best-effort slots chat bears, a real number.

A share is judged by requests that began under it. Inflation over chat alone is taken to be
proportional to the share, which tells how far to go: too much is cut to where it should be just
right, at once; too little grows there slowly. A level that was too much is not tried again for a
while, and for longer each time. A cut that does not help twice in a row was not the cure: then
best-effort work is not the cause, and what chat takes by itself has to be measured anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, floor, inf

# The most that one judgement moves the share.
_MOST_CUT, _LEAST_CUT = 0.3, 0.9
_MOST_GROWTH = 1.5
# As part of what is allowed above 1: between these nothing moves.
_GROW_BELOW = 0.8
# How long a level that was too much is left alone, seconds; doubled each time.
_BARRED_S, _MOST_BARRED_S = 20.0, 600.0
# A cut that brought less than this part of what it should have was no help.
_HELP = 0.25
_MOST_USELESS = 2


class Move(StrEnum):
    """What came of a judgement."""

    CUT = "cut"
    GREW = "grew"
    HELD = "held"
    NOT_THE_CAUSE = "not the cause"


@dataclass(slots=True)
class Share:
    """The share of best-effort work on one GPU.

    Args:
        target: see `ProtectionSettings`.
        least: the share is never below.
        value: slots; below 1 a duty.
    """

    target: float
    least: float
    value: float
    _barred: dict[int, tuple[float, float]] = field(default_factory=dict)  # level: until, for
    _useless: int = 0
    _before: tuple[float, float] | None = None  # share and ratio before the last cut
    _before_all: float = 0.0  # share before the first of the useless cuts

    def judge(self, ratio: float, now: float, *, used: bool) -> Move:
        """Move the share.

        Args:
            ratio: chat's times over what they are without best-effort work.
            now: seconds.
            used: best-effort work wanted more than the share gave.
        """
        if self._is_useless(ratio):
            self.value = max(self.value, self._before_all)
            self._before = None
            self._useless = 0
            return Move.NOT_THE_CAUSE
        allowed = self.target - 1
        excess = max(ratio - 1, 0.0)
        if excess > allowed:
            return self._cut(allowed / excess, ratio, now)
        self._before = None
        self._useless = 0
        if not used or excess > _GROW_BELOW * allowed:
            return Move.HELD
        grown = self.value * min(_MOST_GROWTH, allowed / max(excess, 0.01))
        grown = min(grown, self._first_barred(now))
        if grown <= self.value:
            return Move.HELD
        self.value = grown
        return Move.GREW

    def _cut(self, factor: float, ratio: float, now: float) -> Move:
        if self.value <= self.least:
            return Move.HELD
        if self._before is None:
            self._before_all = self.value
        self._before = self.value, ratio
        self._bar(now)
        factor = min(max(factor, _MOST_CUT), _LEAST_CUT)
        value = self.value
        if value >= 1 and floor(value * factor) >= floor(value):
            factor = (floor(value) - 1) / value or factor  # a cut that moves no slot is none
        self.value = max(self.least, value * factor)
        return Move.CUT

    def _bar(self, now: float) -> None:
        level = floor(self.value)
        if level < 1:
            return
        _, seconds = self._barred.get(level, (0.0, _BARRED_S / 2))
        seconds = min(2 * seconds, _MOST_BARRED_S)
        self._barred[level] = now + seconds, seconds

    def _first_barred(self, now: float) -> float:
        """Where growth has to end for now."""
        levels = [level for level, (until, _) in self._barred.items() if until > now]
        above = min((level for level in levels if level > self.value), default=None)
        return inf if above is None else above - 0.01

    def _is_useless(self, ratio: float) -> bool:
        """Whether the last cuts have not helped."""
        if self._before is None:
            return False
        share, before = self._before
        hoped_for = (
            (before - 1) * (1 - ceil(self.value) / ceil(share))
            if self.value >= 1
            else ((before - 1) * (1 - self.value / share))
        )
        if before - ratio >= _HELP * hoped_for:
            self._useless = 0
            return False
        self._useless += 1
        return self._useless >= _MOST_USELESS
