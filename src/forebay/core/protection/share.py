"""The law of protection: how many best-effort slots chat bears, a real number.

A share is judged by requests that began under it. Inflation over chat alone is taken to grow with
the share; its slope, averaged over judgements, tells which share would be just right, and the share
goes there: down at once, up in steps. A level that was too much is not tried again for a while, and
for longer each time. Cuts that bring nothing were not the cure: then best-effort work is not the
cause either, and what chat takes by itself has to be measured anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, inf, log

# The most that one judgement moves the share; growth in the second case, far below the target.
_MOST_CUT, _GROWTH, _FAST_GROWTH = 0.3, 1.5, 2.0
_FAR = 0.3
# Nothing moves for less than this.
_DEAD_BAND = 0.1
# Weight of a judgement in the mean slope; one that is plainly bad counts alone.
_GAIN = 0.4
_PLAINLY = 2.0
_LEAST_EXCESS = 0.02
# How long a level that was too much is left alone, seconds; doubled each time.
_BARRED_S, _MOST_BARRED_S = 20.0, 600.0
# A cut that brought less than this part of what it should have was no help.
_HELP = 0.25
_MOST_USELESS = 3


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
    _slope: float | None = None  # excess of the ratio over 1, for each slot
    _barred: dict[int, tuple[float, float]] = field(default_factory=dict)  # level: until, for
    _before: tuple[float, float] | None = None  # slots and excess before the last cut
    _useless: int = 0
    _before_all: float = 0.0  # the share before the first of the useless cuts

    @property
    def slots(self) -> float:
        """What the share comes to: whole slots, or a duty."""
        return float(int(self.value)) if self.value >= 1 else self.value

    def judge(self, ratio: float, now: float, *, used: bool) -> Move:
        """Move the share.

        Args:
            ratio: chat's times over what they are without best-effort work.
            now: seconds.
            used: best-effort work wanted more than the share gave.
        """
        allowed = self.target - 1
        excess = max(ratio - 1, _LEAST_EXCESS)
        self._see_whether_it_helped(excess)
        if self._useless >= _MOST_USELESS and excess > allowed:
            self.value = max(self.value, self._before_all)
            self._useless, self._slope = 0, None
            return Move.NOT_THE_CAUSE
        aim = allowed / self._mean_slope(excess, plain=excess > _PLAINLY * allowed)
        if excess > allowed and aim < self.value * (1 - _DEAD_BAND):
            return self._cut(aim, excess, now)
        fastest = _FAST_GROWTH if excess < _FAR * allowed else _GROWTH
        grown = min(aim, self.value * fastest, self._first_barred(now))
        if not used or excess > allowed or grown < self.value * (1 + _DEAD_BAND):
            return Move.HELD
        self.value = grown
        return Move.GREW

    def _mean_slope(self, excess: float, *, plain: bool) -> float:
        slope = excess / self.slots
        if self._slope is None or plain:
            self._slope = slope
        else:
            self._slope *= exp(_GAIN * log(slope / self._slope))
        return self._slope

    def _cut(self, aim: float, excess: float, now: float) -> Move:
        if self.value <= self.least:
            return Move.HELD
        if not self._useless:
            self._before_all = self.value
        self._before = self.slots, excess
        self._bar(now)
        self.value = max(self.least, aim, _MOST_CUT * self.value)
        return Move.CUT

    def _see_whether_it_helped(self, excess: float) -> None:
        if self._before is None:
            return
        slots, before = self._before
        self._before = None
        hoped_for = before * (1 - self.slots / slots)
        if before - excess < _HELP * hoped_for:
            self._useless += 1
        elif hoped_for > 0:
            self._useless = 0

    def _bar(self, now: float) -> None:
        level = int(self.value)
        if level > 1:
            _, seconds = self._barred.get(level, (0.0, _BARRED_S / 2))
            seconds = min(2 * seconds, _MOST_BARRED_S)
            self._barred[level] = now + seconds, seconds

    def _first_barred(self, now: float) -> float:
        """Where growth has to end for now."""
        above = [level for level, (until, _) in self._barred.items() if until > now]
        return min((level - 0.01 for level in above if level > self.value), default=inf)
