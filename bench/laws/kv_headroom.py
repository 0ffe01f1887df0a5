"""AIMD on the engine's word: more while its KV cache has room, less when it preempts or queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .reference import Reference

if TYPE_CHECKING:
    from forebay.core.model import Signal

_FULL = 0.8
_BACKOFF = 0.8
_GROWTH = 0.1


class KvHeadroom(Reference):
    """See the module; after prime-rl's. Without metrics it never moves."""

    def __init__(self, floor: int, ceiling: int) -> None:
        super().__init__(floor, ceiling, start=20)
        self._inflight = 0
        self._preemptions = 0.0
        self._ended_since_cut = 0

    def answered(self, seconds: float, inflight: int, now: float) -> None:
        del seconds, now
        self._inflight = max(self._inflight, inflight)
        self._ended_since_cut += 1

    def dropped(self, inflight: int, now: float) -> None:
        self._cut()
        del inflight, now

    def told(self, signal: Signal, now: float) -> None:
        del now
        preemptions = signal.preemptions or 0.0
        preempted = preemptions > self._preemptions
        self._preemptions = preemptions
        usage = signal.kv_usage or 0.0
        if preempted or (signal.waiting_capacity or signal.waiting or 0) > 0:
            self._cut()
        elif usage > _FULL:
            self.exact -= 1
        elif self._inflight >= 0.9 * int(self.exact):
            self.exact += max(1.0, _GROWTH * self.exact) * (1 - usage / _FULL)
        self._inflight = 0

    def _cut(self) -> None:
        if self._ended_since_cut >= self.exact:
            self.exact *= _BACKOFF
            self._ended_since_cut = 0
