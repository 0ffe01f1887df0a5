"""Netflix' Vegas: the queue that latency betrays is to stay between two logarithms of the limit."""

from __future__ import annotations

from math import ceil, inf, log10

from .reference import Reference

_PROBE_EVERY = 30  # × limit answers, after which the baseline is taken anew


class Vegas(Reference):
    """See the module."""

    def __init__(self, floor: int, ceiling: int) -> None:
        super().__init__(floor, ceiling, start=20)
        self._least_s = inf
        self._answers = 0

    def answered(self, seconds: float, inflight: int, now: float) -> None:
        del now
        self._answers += 1
        limit = self.exact
        if self._answers >= _PROBE_EVERY * limit:
            self._answers = 0
            self._least_s = seconds
            return
        if seconds < self._least_s:
            self._least_s = seconds
            return
        if inflight * 2 < limit:
            return
        queue = ceil(limit * (1 - self._least_s / seconds))
        log = max(1, int(log10(limit)))
        if queue <= log:
            self.exact = limit + 6 * log
        elif queue < 3 * log:
            self.exact = limit + log
        elif queue > 6 * log:
            self.exact = limit - log

    def dropped(self, inflight: int, now: float) -> None:
        del inflight, now
        self.exact -= max(1, int(log10(self.exact)))
