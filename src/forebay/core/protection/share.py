"""The laws of protection: how many best-effort slots chat bears, real numbers.

`Share` is for the time when chat is active. A level at which chat is fast enough is known to be
good; from there it goes up in steps. A new level is on trial: if it is too much, however much, the
share is back where it came from, and what is between the two is tried by halves. The level that
was too much is left alone for a while, and for longer each time. Where chat becomes slow at a level
that was good, or no good one is known, the share goes down in proportion to what is too much.

`IdleShare` is for the time when chat is idle: what is in flight then slows the first requests that
come. A few slow ones in a hundred are what a 95th percentile allows, so it is steered by counting
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, log, sqrt

from forebay.core.protection.window import Verdict

# One judgement cuts to no less than, and no more than, these parts of the share. Chat for which a
# part of less than `_WRECKED` would be in proportion is several times too slow, and a queue grows
# before it: the cut is deep, and what was seen before does not hold.
_DEEPEST_CUT, _LEAST_CUT = 0.5, 0.8
_WRECKED, _DEEP_CUT = 0.2, 0.1
# Steps up: near the target, far below it (so much of the excess that is allowed), and far below it
# where no level has been too much yet.
_STEP, _FAR_STEP, _FIRST_STEP, _FAR = 1.25, 1.6, 2.5, 0.5
# Chat alone at so many times its speed, or that part of it, is another machine.
_ANOTHER = 1.5
# How long a level that was too much is left alone, seconds; doubled each time until it is good.
_BARRED_S, _MOST_BARRED_S = 60.0, 900.0
_SAME_LEVEL = 0.75
# A step smaller than this is not worth its trial.
_LEAST_STEP = 1.1
# Values of about one level, so many times apart, are taken together; weight of what is new.
_LEVEL, _GAIN = 1.25, 0.4
# One in so many of chat's readings may be slow because of what its idle time let in. How much less
# that lets in, at most and at least, and how much more every other reading does.
_READINGS_PER_SLOW, _MOST_OWED = 25.0, 200.0
_LEAST, _LESS, _MORE = 0.5, 0.8, 1.01
_ALL = 1e6


class Move(StrEnum):
    """What came of a judgement."""

    CUT = "cut"
    GREW = "grew"
    HELD = "held"


@dataclass(slots=True)
class Share:
    """Best-effort slots while chat is active; below 1 a part of the time.

    Args:
        target: see `ProtectionSettings`.
        least: it is never below.
        value: slots.
        cuts: how many there were since chat was fast enough.
    """

    target: float
    least: float
    value: float
    cuts: int = field(default=0, init=False)
    # By level: the value, and how slow chat was beside it, a logarithm.
    _seen: dict[int, tuple[float, float]] = field(default_factory=dict)
    _came_from: float = 0.0  # the good value before a step up that is on trial; 0: there is none
    _before: float = 0.0  # the value before `cuts`, and how slow chat was
    _blamed: float = 0.0
    _bar: float = inf  # a value that was too much
    _barred_until: float = -inf
    _barred_s: float = 0.0

    @property
    def on_trial(self) -> bool:
        """Whether nothing is known of its level: it has just begun, or gone up."""
        return self._came_from > 0 or not self._seen

    def judge(self, verdict: Verdict, ratio: float, now: float, *, used: bool) -> Move:
        """Move the share.

        Args:
            verdict: on chat's speed under the present value.
            ratio: chat's times over what they are without best-effort work.
            now: seconds.
            used: best-effort work wanted more than the share gave.
        """
        level, seen = _level(self.value), log(ratio)
        if level in self._seen:
            _, before = self._seen[level]
            seen = before + _GAIN * (seen - before)
        if used or verdict is Verdict.TOO_SLOW:
            self._seen[level] = self.value, seen
        slow = seen > log(self.target)
        if verdict is Verdict.TOO_SLOW and slow:
            return self._cut(ratio, now)
        self.cuts, self._came_from = 0, 0.0
        if verdict is not Verdict.TOO_SLOW and self.value >= self._bar:
            self._barred_s = 0.0
        return (
            self._grow(ratio, now) if verdict is Verdict.FAST and used and not slow else Move.HELD
        )

    def forget(self, moved: float) -> bool:
        """Chat alone has another speed: what was seen says little, or nothing any more.

        Args:
            moved: times as long as before that it takes.

        Returns:
            Whether that is why chat was slow, so that the last cuts were taken back.
        """
        innocent = self.cuts > 0 and moved > 1 and self._blamed <= moved * self.target
        if innocent:
            self.value = max(self.value, self._before)
        self.cuts = 0
        if innocent or not 1 / _ANOTHER < moved < _ANOTHER:
            self._bar, self._came_from = inf, 0.0
            self._seen.clear()
        return innocent

    def _cut(self, ratio: float, now: float) -> Move:
        if not self.cuts:
            self._before, self._blamed = self.value, ratio
        self.cuts += 1
        if self.value <= self.least:
            return Move.HELD
        self._bar_here(now)
        if self._came_from:
            self.value, self._came_from = self._came_from, 0.0
            return Move.CUT
        here = _level(self.value)
        good = [value for value in self._good() if _level(value) < here]
        part = (self.target - 1) / max(ratio - 1, self.target - 1)
        if part < _WRECKED:
            cut = self.value * max(part, _DEEP_CUT)
        elif good:
            cut = max(good)
        else:
            cut = self.value * min(max(part, _DEEPEST_CUT), _LEAST_CUT)
        self.value = max(self.least, cut)
        return Move.CUT

    def _good(self) -> list[float]:
        """Values beside which chat was fast enough."""
        allowed = log(self.target)
        return [value for value, seen in self._seen.values() if seen <= allowed]

    def _grow(self, ratio: float, now: float) -> Move:
        far = ratio - 1 < _FAR * (self.target - 1)
        far_step = _FIRST_STEP if self._bar == inf else _FAR_STEP
        grown = self.value * (far_step if far else _STEP)
        if self.value < self._bar:
            barred = now < self._barred_until
            half_way = sqrt(self.value * self._bar)
            most = half_way if barred else max(self._bar, self.value * _LEAST_STEP)
            grown = min(grown, most)
        if grown < self.value * _LEAST_STEP:
            return Move.HELD
        if grown > max(self._good(), default=0.0):
            self._came_from = self.value
        self.value = grown
        return Move.GREW

    def _bar_here(self, now: float) -> None:
        again = self.on_trial or self.value >= _SAME_LEVEL * self._bar
        seconds = max(2 * self._barred_s, _BARRED_S) if again else _BARRED_S
        self._bar, self._barred_s = self.value, min(seconds, _MOST_BARRED_S)
        self._barred_until = now + self._barred_s


def _level(value: float) -> int:
    return round(log(value, _LEVEL))


@dataclass(slots=True)
class IdleShare:
    """Best-effort slots while chat is idle.

    Args:
        value: slots; as good as unbounded until chat has been slow because of it.
    """

    value: float = _ALL
    _owed: float = 0.0  # readings that make up for slow ones
    _most: float = 0.0  # twice what was in flight when chat was slow; 0 before

    def read(self, met: int, excess: float) -> None:
        """Fold in one reading of chat.

        Args:
            met: best-effort requests that chat met when it came back, beyond the active share; 0
                for a reading that has nothing to do with that.
            excess: over the expectation, as a part of what is allowed; above 1 it was too slow.
        """
        if met and excess > 1:
            self._owed = min(self._owed + _READINGS_PER_SLOW, _MOST_OWED)
            self._most = max(self._most, 2.0 * met)
            self.value = max(1.0, min(self.value, met * max(_LEAST, _LESS / excess)))
        elif self._owed > 0:
            self._owed -= 1
        elif self._most:
            self.value = min(self.value * _MORE, self._most)
