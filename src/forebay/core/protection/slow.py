"""Statistics of few readings, on logarithms of ratios."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_PART, _LEFT_OUT = 5, 20
# Of readings that scatter normally, that mean has so many times the variance of the mean of all.
_VARIANCE = 2.1
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


def spread(values: Collection[float]) -> float:
    """The standard deviation; of fewer than two, 0."""
    count = len(values)
    if count < 2:  # noqa: PLR2004 - of one there is none
        return 0.0
    mean = sum(values) / count
    return sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))


def error(values: Sequence[float], *, alike: float | None = None) -> float:
    """The standard error of `upper`, of values in the order in which they came.

    What runs at the same time is slow for the same reason, so that neighbours tell less than their
    number says: as much as (1 - r) / (1 + r) times as many, where r is their correlation.

    Args:
        values: in order.
        alike: their correlation; None to take theirs.
    """
    if alike is None:
        alike = min(max(_correlation(values), 0.0), _MOST_ALIKE)
    return spread(values) * sqrt(_VARIANCE * (1 + alike) / (1 - alike) / len(values))


def _correlation(values: Sequence[float]) -> float:
    """Of each value with the next one."""
    mean = fmean(values)
    away = [value - mean for value in values]
    whole = sum(each * each for each in away)
    return sum(a * b for a, b in pairwise(away)) / whole if whole else 0.0
