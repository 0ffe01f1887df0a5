"""How fast requests are served at one limit, and what another limit gains.

Theory of operation. By Little's law an endpoint with n requests in flight, each of which takes T
seconds, completes n / T of them a second. Adding up work on the clock would drown in the scatter of
sizes, which is many times that of an engine's speed. So sizes are taken out first: a line through a
level's readings says what a request takes there, as a function of its work, and levels are compared
by what a *usual* request takes. Then the ratio of work per second is

    (n₂ / n₁) · (T₁ / T₂)

Far below an engine's capacity T stays and the ratio is n₂ / n₁; beyond it the ratio is 1, since
whatever comes in addition only waits. Only requests that began under a level are read at it. Those
that have ended by then are short ones, which is why the line matters.
"""

from __future__ import annotations

from collections import deque
from math import log, sqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# As many readings as are in flight at a time are a pool; older ones than so many pools are dropped.
_POOLS = 4
_FEWEST, _MOST = 256, 1024

# Requests that run together share their fate (the same steps, the same neighbours), so that more of
# them do not say more: the mean of a pool is off by so much at least.
_SHARED_FATE = 0.05

# The two parts of a line move together unless as many readings as this say otherwise.
_TOGETHER = 2.0
_APART = 0.5  # by how much they may differ, where sizes are too much alike to tell
_TELLS_SCATTER = 3


class Reading(NamedTuple):
    """One request that was answered.

    Args:
        work: what was done, in any unit that is one unit for each endpoint; 0 if unknown.
        seconds: how long it was at the endpoint.
        inflight: how many were there when it ended, itself included.
    """

    work: float
    seconds: float
    inflight: int


class Level:
    """Readings that were taken while one limit was in force and in use.

    Args:
        limit: the limit.
    """

    __slots__ = ("limit", "readings")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.readings: deque[Reading] = deque(maxlen=min(max(_FEWEST, _POOLS * limit), _MOST))

    def __len__(self) -> int:
        return len(self.readings)

    @property
    def pools(self) -> float:
        """How many times over all that was in flight has been read."""
        return len(self.readings) / self.limit

    @property
    def inflight(self) -> float:
        """Mean in-flight count; there must be readings."""
        return sum(reading.inflight for reading in self.readings) / len(self.readings)

    @property
    def seconds(self) -> float:
        """Mean time; there must be readings."""
        return sum(reading.seconds for reading in self.readings) / len(self.readings)


class Gain(NamedTuple):
    """What one level does beside another; all are natural logarithms.

    Args:
        work: of the ratio of work per second; 0 means as much.
        width: of the ratio of requests in flight.
        error: standard error of `work`.
    """

    work: float
    width: float
    error: float

    @property
    def slowness(self) -> float:
        """How many times as long a usual request takes."""
        return self.width - self.work


class Line(NamedTuple):
    """What a request takes at a level, as a function of its work."""

    fixed_s: float
    per_work_s: float

    def at(self, work: float) -> float:
        """Return the seconds that so much work takes."""
        return self.fixed_s + self.per_work_s * work


def gain(before: Level, after: Level, work: float) -> Gain:
    """Compare two levels, neither of which is empty.

    Args:
        before: the one.
        after: the other.
        work: of a usual request.
    """
    # The level that is known better tells what a line looks like on this endpoint.
    better, other = (before, after) if len(before) >= len(after) else (after, before)
    better_line, better_error = _fit(better.readings, _guess(better), work)
    other_line, other_error = _fit(other.readings, better_line, work)
    slowness = log(other_line.at(work) / better_line.at(work))
    width = log(after.inflight / before.inflight)
    fate = _SHARED_FATE * sqrt(1 / before.pools + 1 / after.pools)
    error = sqrt(better_error**2 + other_error**2 + fate**2)
    return Gain(width - (slowness if other is after else -slowness), width, error)


def line(level: Level) -> Line:
    """Return what a request takes at a level, which is not empty."""
    return _fit(level.readings, _guess(level), 0.0)[0]


def _guess(level: Level) -> Line:
    """A line of which half is fixed, half grows with the work."""
    mean_work = sum(reading.work for reading in level.readings) / len(level)
    half_s = level.seconds / 2
    return Line(half_s, half_s / mean_work) if mean_work > 0 else Line(2 * half_s, 0.0)


def _fit(readings: Iterable[Reading], guess: Line, work: float) -> tuple[Line, float]:
    """Draw a line through readings: a guess with a factor on each of its two parts.

    Least squares of relative errors, the two factors drawn towards each other.

    Returns:
        The line, and the relative standard error of what it says of `work`.
    """
    pp = pq = qq = py = qy = yy = total = sum_p = 0.0
    count = 0
    for reading in readings:
        expected_s = guess.at(reading.work)
        p = guess.fixed_s / expected_s
        q = 1 - p
        y = reading.seconds / expected_s
        pp, pq, qq = pp + p * p, pq + p * q, qq + q * q
        py, qy, yy = py + p * y, qy + q * y, yy + y * y
        total += y
        sum_p += p
        count += 1
    drawn = _TOGETHER * total / count
    a, b = pp + _TOGETHER, qq + _TOGETHER
    determinant = a * b - pq * pq
    u = ((py + drawn) * b - (qy + drawn) * pq) / determinant
    v = ((qy + drawn) * a - (py + drawn) * pq) / determinant
    if u < 0:
        u, v = 0.0, (qy + drawn) / b
    elif v < 0:
        u, v = (py + drawn) / a, 0.0
    line = Line(u * guess.fixed_s, v * guess.per_work_s)
    if count < _TELLS_SCATTER:
        return line, 1.0
    rest = yy - 2 * (u * py + v * qy) + u * u * pp + 2 * u * v * pq + v * v * qq
    p = guess.fixed_s / guess.at(work)
    q = 1 - p
    spread = (p * p * b - 2 * p * q * pq + q * q * a) / determinant
    # Few readings tell their own scatter badly, and sizes that are all alike tell of no other.
    scatter = (1 + 4 / count) * sqrt(max(rest, 0.0) / (count - 2) * spread)
    mean_p = sum_p / count
    unknown = _TOGETHER / (_TOGETHER + max(0.0, pp - count * mean_p * mean_p))
    shape = _APART * unknown * abs(p - mean_p) * total / count
    return line, sqrt(scatter**2 + shape**2) * guess.at(work) / line.at(work)
