"""Counting observations by size, as Prometheus histograms do."""

from __future__ import annotations

from bisect import bisect_left


class Histogram:
    """Observations by size.

    Args:
        bounds: inclusive upper bounds of the buckets, ascending; one without bound comes on top.
    """

    def __init__(self, *bounds: float) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self._counts)

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, int]]:
        """Return ``(le, observations up to it)`` for each bucket."""
        total, rows = 0, []
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            total += count
            rows.append(("+Inf" if bound is None else str(bound), total))
        return rows
