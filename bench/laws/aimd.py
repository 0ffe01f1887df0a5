"""Netflix' AIMD: one more while in use, × 0.9 on a drop or an answer that took over 5 s."""

from __future__ import annotations

from .reference import Reference

_SLOW_S = 5.0
_BACKOFF = 0.9


class Aimd(Reference):
    """See the module."""

    def __init__(self, floor: int, ceiling: int) -> None:
        super().__init__(floor, ceiling, start=20)

    def answered(self, seconds: float, inflight: int, now: float) -> None:
        if seconds > _SLOW_S:
            self.dropped(inflight, now)
        elif inflight * 2 >= self.exact:
            self.exact = int(self.exact) + 1

    def dropped(self, inflight: int, now: float) -> None:
        del inflight, now
        self.exact = int(self.exact * _BACKOFF)
