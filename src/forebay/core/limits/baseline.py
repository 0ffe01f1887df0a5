"""What a reading of one kind should be on an endpoint that is not congested.

Readings are compared on a logarithmic scale: an *excess* is log2(reading / baseline), so 0 means as
expected and 1 means twice as long.

* **Own size.** A long prompt takes longer than a short one, and that is not congestion. Every
  doubling of size is a class of its own, with a straight line in it. Sizes are judged only once
  they have been learned.
* **Not poisoned by a congested start.** A run of clearly better readings moves a class's line down
  at once, to the worst of that run. One lucky request, or a few, move nothing.
* **No drift in a long incident.** Otherwise a line moves by at most 1 % a minute, only on readings
  taken with no more in flight than the floor, and never above twice the best that was known.
"""

from __future__ import annotations

from math import inf, log2, sqrt
from statistics import median

_MAX_SIZE = 2.0**24
_MIN_SECONDS = 1e-6
_CLIP = 1.0  # doublings that one reading counts for at most

# A class is learned from 16 readings if they agree, from up to 256 if they scatter. Where they come
# slowly, 32 must do: a wrong baseline costs less where it is acted upon less often.
_LEARN_AT = (16, 32, 64, 128, 256)
_LEARN_SLOWLY = 32
_LEARN_S = 30.0
_CLASS_ERROR = 0.06  # standard error of a class's line, in doublings: 4 %
_TOTAL_ERROR = 0.03  # what a class may add to the error of the whole

_MARGIN = 0.1  # doublings beyond the sizes seen to which a line is trusted
_FLAT = 0.01  # variance of sizes, in doublings², below which their slope is not believed
_MAX_SLOPE = 2.0  # attention makes time grow with the square of the size at worst

_BETTER = -0.234  # in doublings: 0.85 of the baseline
_BETTER_RUN = 16

_TRACK_PER_S = 0.01 / 60 * 1.4427  # 1 % a minute, in doublings
_TRACK_MAX_S = 10.0
_MAX_RISE = 1.0  # in doublings
_DRIFT_GAIN = 1 / 32
_DRIFT_FULL = 0.1  # in doublings; the drift at which a line moves at full speed

_RECENT_GAIN = 1 / 16
_RECENT_FADE = 1 / 64  # with each reading that tells nothing of congestion


class _SizeClass:
    """The line around one size: `x` is log2(size), `y` is log2(seconds)."""

    __slots__ = (
        "_drift",
        "_high",
        "_learning",
        "_learning_since",
        "_low",
        "_run",
        "_run_worst",
        "_slope",
        "_total_before",
        "_tracked_at",
        "_x",
        "_y",
        "best_y",
    )

    def __init__(self) -> None:
        self._x = self._y = self.best_y = self._slope = 0.0
        self._low, self._high = inf, -inf
        self._learning: list[tuple[float, float]] = []
        self._learning_since = 0.0
        self._total_before = 0
        self._drift = 0.0
        self._tracked_at = -inf
        self._run = 0
        self._run_worst = -inf

    def excess(self, x: float, y: float) -> float | None:
        """Return how far a reading is above the line; None where there is no line yet."""
        if not self._low <= x <= self._high:
            return None
        return y - self._y - self._slope * (x - self._x)

    def learn(self, x: float, y: float, *, total: int, now: float) -> None:
        """Collect readings of sizes that are new, and draw the line once they are enough."""
        if not self._learning:
            self._learning_since = now
            self._total_before = total - 1
        self._learning.append((x, y))
        count = len(self._learning)
        slow = count >= _LEARN_SLOWLY and now - self._learning_since >= _LEARN_S
        if not slow and count not in _LEARN_AT:
            return
        line = _Line(self._learning)
        share = count / (total - self._total_before)
        sure = line.error <= _CLASS_ERROR and line.error * sqrt(share) <= _TOTAL_ERROR
        if not (sure or slow or count == _LEARN_AT[-1]):
            return
        if self._low > self._high:
            self._x, self._y, self._slope = line.x, line.y, line.slope
            self.best_y = line.y
        elif abs(line.x - self._x) > _MARGIN:  # new sizes of a known class: through both middles
            self._slope = _plausible((line.y - self._y) / (line.x - self._x))
        else:  # new sizes to either side
            self._slope = line.slope
        self._low = min(self._low, line.low - _MARGIN)
        self._high = max(self._high, line.high + _MARGIN)
        self._learning = []

    def follow(self, excess: float) -> None:
        """Move the line down if a whole run of readings is clearly better."""
        if excess >= _BETTER:
            self._run = 0
            self._run_worst = -inf
            return
        self._run += 1
        self._run_worst = max(self._run_worst, excess)
        if self._run == _BETTER_RUN:
            self._y += self._run_worst
            self.best_y = min(self.best_y, self._y)
            self._run = 0
            self._run_worst = -inf

    def track(self, excess: float, now: float) -> None:
        """Follow a slow change of the endpoint itself."""
        step = _TRACK_PER_S * min(max(now - self._tracked_at, 0.0), _TRACK_MAX_S)
        self._tracked_at = now
        self._drift += _DRIFT_GAIN * (min(max(excess, -_CLIP), _CLIP) - self._drift)
        self._y += step * min(max(self._drift / _DRIFT_FULL, -1.0), 1.0)
        self._y = min(self._y, self.best_y + _MAX_RISE)
        self.best_y = min(self.best_y, self._y)

    def forgive(self) -> None:
        """Take the line as it is for the best that is known."""
        self.best_y = self._y


class _Line:
    """A line through readings: its middle, its slope, and how well the middle is known."""

    def __init__(self, readings: list[tuple[float, float]]) -> None:
        count = len(readings)
        xs = [x for x, _ in readings]
        middle = median(y for _, y in readings)
        ys = [min(max(y, middle - _CLIP), middle + _CLIP) for _, y in readings]
        self.low, self.high = min(xs), max(xs)
        self.x = sum(xs) / count
        self.y = sum(ys) / count
        spread = sum((x - self.x) ** 2 for x in xs)
        joint = sum((x - self.x) * (y - self.y) for x, y in zip(xs, ys, strict=True))
        self.slope = _plausible(joint / (spread + _FLAT * count))
        rest = sum(
            (y - self.y - self.slope * (x - self.x)) ** 2 for x, y in zip(xs, ys, strict=True)
        )
        self.error = sqrt(rest) / count


def _plausible(slope: float) -> float:
    return min(max(slope, 0.0), _MAX_SLOPE)


class Baseline:
    """The baselines of one kind of reading, one per size class; at most 25 of them."""

    def __init__(self) -> None:
        self._classes: dict[int, _SizeClass] = {}
        self._recent = 0.0  # running mean of the excess
        self._count = 0

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
        x = log2(min(max(1.0, size), _MAX_SIZE))
        y = log2(max(seconds, _MIN_SECONDS))
        self._count += 1
        known = self._classes.get(int(x))
        if known is None:
            known = self._classes[int(x)] = _SizeClass()
        excess = known.excess(x, y)
        if excess is None:
            # What other sizes are too slow by now is congestion, and no part of this one's line.
            known.learn(x, y - max(0.0, self._recent), total=self._count, now=now)
            self._recent -= _RECENT_FADE * self._recent
            return None
        self._recent += _RECENT_GAIN * (excess - self._recent)
        known.follow(excess)
        if at_floor:
            known.track(excess, now)
        return excess

    def forgive(self) -> None:
        """Let every line rise anew: the endpoint may have come back as another one."""
        for known in self._classes.values():
            known.forgive()
