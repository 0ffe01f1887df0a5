"""Statistics of few readings, on logarithms of ratios."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_PART, _LEFT_OUT = 5, 20
# Beyond the 80th percentile most times tail off exponentially, in logarithms too. Of such readings
# that mean has, as its standard error, so many times their mean excess over that percentile, over
# the root of their number.
_ERROR = 2.7
# What the excess is at least, as a part of the standard deviation: few readings do not tell it.
_LEAST_EXCESS = 0.55
_MOST_ALIKE = 0.9


def upper(values: Collection[float]) -> float:
    """The mean of those between the 80th and the 95th percentile.

    It stands for the 95th, which so few readings do not tell, and leaves out what is beyond it, as
    that does. Whoever compares two of them compares the same part of two distributions.
    """
    ordered = sorted(values)
    count = len(ordered)
    slowest = ordered[count - max(1, count // _PART) : count - count // _LEFT_OUT]
    return sum(slowest) / len(slowest)


def quick(values: Iterable[float]) -> float:
    """The lower quartile: company slows most readings a little and some a lot, but not those."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4]


def spread(values: Collection[float]) -> float:
    """The standard deviation; of fewer than two, 0."""
    count = len(values)
    if count < 2:  # noqa: PLR2004 - of one there is none
        return 0.0
    mean = sum(values) / count
    return sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))


def error(values: Sequence[float]) -> float:
    """The standard error of `upper`, of values in the order in which they came."""
    count = len(values)
    slowest = sorted(values)[count - max(1, count // _PART) - 1 :]
    excess = max(fmean(slowest) - slowest[0], _LEAST_EXCESS * spread(values))
    return _ERROR * excess / sqrt(count * news(values))


def news(values: Sequence[float]) -> float:
    """How much each value tells that those before it did not; 1 if they have nothing in common.

    What runs at the same time is slow for the same reason: neighbours whose correlation is r tell
    as much as (1 - r) / (1 + r) times as many independent ones.
    """
    alike = min(max(_correlation(values), 0.0), _MOST_ALIKE)
    return (1 - alike) / (1 + alike)


def _correlation(values: Sequence[float]) -> float:
    """Of each value with the next one."""
    mean = fmean(values)
    away = [value - mean for value in values]
    whole = sum(each * each for each in away)
    return sum(a * b for a, b in pairwise(away)) / whole if whole else 0.0
