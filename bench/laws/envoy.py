"""Envoy's adaptive concurrency: a gradient on p50, its baseline measured with three in flight."""

from __future__ import annotations

from math import sqrt
from statistics import median

from .reference import Reference

_PINNED = 3
_PROBES = 50
_PROBE_EVERY_S = 60.0
_UPDATE_EVERY_S = 0.1
_BUFFER = 1.25
_FEWEST = 5


class Envoy(Reference):
    """See the module. Envoy refuses what is too much; here it waits, as it does for every law."""

    def __init__(self, floor: int, ceiling: int) -> None:
        super().__init__(floor, ceiling, start=_PINNED)
        self._baseline_s = 0.0
        self._resume = float(_PINNED)
        self._readings: list[float] = []
        self._probing = True
        self._next_at = 0.0
        self._probe_at = 0.0

    def answered(self, seconds: float, inflight: int, now: float) -> None:
        del inflight
        self._readings.append(seconds)
        if self._probing:
            if len(self._readings) >= _PROBES:
                self._baseline_s = median(self._readings)
                self._probing = False
                self._probe_at = now + _PROBE_EVERY_S
                self._next_at = now + _UPDATE_EVERY_S
                self._readings.clear()
                self.exact = self._resume
        elif now >= self._probe_at:
            self._resume, self.exact = self.exact, _PINNED
            self._probing = True
            self._readings.clear()
        elif now >= self._next_at and len(self._readings) >= _FEWEST:
            gradient = min(max(_BUFFER * self._baseline_s / median(self._readings), 0.5), 2.0)
            self.exact = gradient * self.exact + sqrt(gradient * self.exact)
            self._readings.clear()
            self._next_at = now + _UPDATE_EVERY_S
