"""What a reading of one kind should be on an endpoint that is not congested.

Readings are compared on a logarithmic scale: an *excess* is log2(reading / baseline), so 0 means as
expected and 1 means twice as long.

* **Own size.** A long prompt takes longer than a short one, and that is not congestion. Sizes fall
  into classes of half a doubling; within a class the baseline follows the slope to its neighbours.
  A class is judged only once it has been learned.
* **Not poisoned by a congested start.** A run of clearly better readings moves a class's baseline
  down at once, to the worst of that run. One lucky request, or a few, move nothing.
* **No drift in a long incident.** Otherwise the baseline moves by at most 1 % a minute, only on
  readings taken with no more in flight than the floor, and never above twice the best that was
  known.
"""

from __future__ import annotations

from math import inf, log2, sqrt
from statistics import median

_CLASSES_PER_DOUBLING = 2
_MAX_SIZE = 2.0**24
_MIN_SECONDS = 1e-6

# A class is learned from 8 readings if they agree, from up to 64 if they scatter.
_LEARN_AT = (8, 16, 32, 64)
_LEARN_ERROR = 0.045  # standard error in doublings: 3 %
_CLIP = 1.0  # doublings that one reading may be away from the others

_BETTER = -0.234  # in doublings: 0.85 of the baseline
_BETTER_RUN = 16

_TRACK_PER_S = 0.01 / 60 * 1.4427  # 1 % a minute, in doublings
_TRACK_MAX_S = 10.0
_MAX_RISE = 1.0  # in doublings
_DRIFT_GAIN = 1 / 32
_DRIFT_FULL = 0.1  # in doublings; the drift at which the baseline moves at full speed

_NEIGHBOURS = 2  # classes to either side that tell the slope
_MAX_SLOPE = 2.0  # attention makes time grow with the square of the size at worst


class _SizeClass:
    """The baseline around one size; `x` is log2(size), `y` is log2(seconds)."""

    __slots__ = (
        "best_y",
        "drift",
        "excess_before",
        "judged_before",
        "learning",
        "run",
        "run_worst",
        "slope",
        "tracked_at",
        "x",
        "y",
    )

    def __init__(self, judged_before: int, excess_before: float) -> None:
        self.learning: list[tuple[float, float]] | None = []
        self.judged_before = judged_before
        self.excess_before = excess_before
        self.x = self.y = self.best_y = self.slope = 0.0
        self.drift = 0.0
        self.run = 0
        self.run_worst = -inf
        self.tracked_at = -inf

    def learn(self, x: float, y: float) -> bool:
        """Add a first reading; return whether there are enough now to know the class."""
        assert self.learning is not None  # noqa: S101 - callers ask
        self.learning.append((x, y))
        count = len(self.learning)
        if count not in _LEARN_AT:
            return False
        middle = median(y for _, y in self.learning)
        near = [min(max(y - middle, -_CLIP), _CLIP) for _, y in self.learning]
        mean = sum(near) / count
        error = sqrt(sum((y - mean) ** 2 for y in near)) / count
        if error > _LEARN_ERROR and count < _LEARN_AT[-1]:
            return False
        self.x = sum(x for x, _ in self.learning) / count
        self.y = self.best_y = middle + mean
        self.learning = None
        return True

    def track(self, excess: float, now: float) -> None:
        """Follow a slow change of the endpoint itself."""
        step = _TRACK_PER_S * min(max(now - self.tracked_at, 0.0), _TRACK_MAX_S)
        self.tracked_at = now
        self.drift += _DRIFT_GAIN * (min(max(excess, -_CLIP), _CLIP) - self.drift)
        self.y += step * min(max(self.drift / _DRIFT_FULL, -1.0), 1.0)
        self.y = min(self.y, self.best_y + _MAX_RISE)
        self.best_y = min(self.best_y, self.y)

    def improve(self, excess: float) -> bool:
        """Note a clearly better reading; return whether a run of them moved the baseline."""
        self.run += 1
        self.run_worst = max(self.run_worst, excess)
        if self.run < _BETTER_RUN:
            return False
        self.y += self.run_worst
        self.best_y = min(self.best_y, self.y)
        self.run = 0
        self.run_worst = -inf
        return True


class Baseline:
    """Baselines of one kind of reading, one per size class; at most 49 of them."""

    def __init__(self) -> None:
        self._classes: dict[int, _SizeClass] = {}
        self._judged = 0
        self._excess_sum = 0.0

    def read(self, seconds: float, size: float, *, at_floor: bool, now: float) -> float | None:
        """Compare a reading with what is expected of its size, and learn from it.

        Args:
            seconds: what was measured.
            size: what it is measured against, in the kind's own unit.
            at_floor: no more than the floor was in flight, so nothing but the endpoint itself
                can be the cause.
            now: seconds.

        Returns:
            The excess in doublings, or None while readings of that size are still being learned.
        """
        x = log2(min(max(size, 1.0), _MAX_SIZE))
        y = log2(max(seconds, _MIN_SECONDS))
        index = int(x * _CLASSES_PER_DOUBLING)
        known = self._classes.get(index)
        if known is None:
            known = self._classes[index] = _SizeClass(self._judged, self._excess_sum)
        if known.learning is not None:
            if known.learn(x, y):
                self._discount_congestion(known)
                self._refit(index)
            return None
        excess = y - known.y - known.slope * (x - known.x)
        self._judged += 1
        self._excess_sum += excess
        if excess >= _BETTER:
            known.run = 0
            known.run_worst = -inf
        elif known.improve(excess):
            self._refit(index)
        if at_floor:
            known.track(excess, now)
        return excess

    def forgive(self) -> None:
        """Let every class rise anew: the endpoint may have come back as another one."""
        for known in self._classes.values():
            known.best_y = known.y

    def _discount_congestion(self, learned: _SizeClass) -> None:
        """Take out what other sizes were too slow by while this one was being learned."""
        judged = self._judged - learned.judged_before
        if judged >= _LEARN_AT[0]:
            excess = (self._excess_sum - learned.excess_before) / judged
            learned.y = learned.best_y = learned.y - max(0.0, excess)

    def _refit(self, index: int) -> None:
        """Draw the slopes anew around a class whose baseline has moved."""
        for near in range(index - _NEIGHBOURS, index + _NEIGHBOURS + 1):
            known = self._classes.get(near)
            if known is None or known.learning is not None:
                continue
            left = self._learned(near - 1, near - _NEIGHBOURS) or known
            right = self._learned(near + 1, near + _NEIGHBOURS) or known
            if right is not left:
                slope = (right.y - left.y) / (right.x - left.x)
                known.slope = min(max(slope, 0.0), _MAX_SLOPE)

    def _learned(self, *indices: int) -> _SizeClass | None:
        for index in indices:
            known = self._classes.get(index)
            if known is not None and known.learning is None:
                return known
        return None
