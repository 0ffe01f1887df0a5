"""Netflix' Gradient2: the limit times long-term over short-term latency, plus a queue of four."""

from __future__ import annotations

from .reference import Reference

_TOLERANCE = 1.5
_QUEUE = 4
_SMOOTHING = 0.2
_LONG = 600  # answers in the long mean


class Gradient2(Reference):
    """See the module. It takes no notice of drops."""

    def __init__(self, floor: int, ceiling: int) -> None:
        super().__init__(floor, ceiling, start=20)
        self._long_s = 0.0
        self._count = 0

    def answered(self, seconds: float, inflight: int, now: float) -> None:
        del now
        self._count += 1
        self._long_s += (seconds - self._long_s) / min(self._count, _LONG)
        if self._long_s > 2 * seconds:  # it recovers fast from a long incident
            self._long_s *= 0.95
        if inflight < self.exact / 2:
            return
        gradient = min(max(_TOLERANCE * self._long_s / seconds, 0.5), 1.0)
        wanted = self.exact * gradient + _QUEUE
        self.exact = (1 - _SMOOTHING) * self.exact + _SMOOTHING * wanted
