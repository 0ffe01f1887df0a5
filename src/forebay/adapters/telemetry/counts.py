"""Counters and histograms that cost next to nothing to move.

They are moved on one event loop, so they need no locks; Prometheus' own have them, and cost as
much as admission. What they hold is turned into Prometheus' families when somebody looks.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client import CollectorRegistry, Metric

    Labels = tuple[str, ...]


class Counts(Collector):
    """A counter, by labels."""

    def __init__(
        self, registry: CollectorRegistry, name: str, text: str, labels: Sequence[str]
    ) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._values: dict[Labels, int] = {}
        registry.register(self)

    def add(self, labels: Labels) -> None:
        """Count one."""
        self._values[labels] = self._values.get(labels, 0) + 1

    def forget(self, label: str, value: str) -> None:
        """Drop what was counted of something that is gone."""
        for labels in _having(self._values, self._labels.index(label), value):
            del self._values[labels]

    def collect(self) -> Iterator[Metric]:
        """What was counted."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        yield family


class Durations(Collector):
    """A histogram of seconds, by labels.

    Args:
        bounds: upper bounds of its buckets, rising.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        text: str,
        labels: Sequence[str],
        bounds: Sequence[float],
    ) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._bounds = bounds
        # By labels: how many fell into each bucket, and their sum.
        self._buckets: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        registry.register(self)

    def add(self, labels: Labels, seconds: float) -> None:
        """Put one in."""
        buckets = self._buckets.get(labels)
        if buckets is None:
            buckets = self._buckets[labels] = [0] * (len(self._bounds) + 1)
            self._sums[labels] = 0.0
        buckets[bisect_left(self._bounds, seconds)] += 1
        self._sums[labels] += seconds

    def forget(self, label: str, value: str) -> None:
        """Drop what was put in of something that is gone."""
        for labels in _having(self._buckets, self._labels.index(label), value):
            del self._buckets[labels], self._sums[labels]

    def collect(self) -> Iterator[Metric]:
        """What was put in, cumulated as Prometheus has it."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        names = [str(float(bound)) if bound < inf else "+Inf" for bound in (*self._bounds, inf)]
        for labels, buckets in self._buckets.items():
            cumulated = list(zip(names, accumulate(buckets), strict=True))
            family.add_metric(labels, cumulated, self._sums[labels])
        yield family


def _having(series: Iterable[Labels], n: int, value: str) -> list[Labels]:
    return [labels for labels in series if labels[n] == value]
