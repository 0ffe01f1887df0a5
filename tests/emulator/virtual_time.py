"""Closed-loop load on the GPU model, on virtual time."""

from __future__ import annotations

import functools
import heapq
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.emulator.chat_engine import ChatSequence
from forebay.emulator.embedding_engine import EmbeddingJob
from forebay.emulator.gpu import Event, Gpu

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.emulator.gpu import Work
    from forebay.emulator.spec import GpuSpec


def run(gpu: Gpu, arrivals: Iterable[tuple[float, Work]] = ()) -> list[Event]:
    """Submit each piece of work at its time, and let the GPU run until it idles."""
    events = [event for at, work in arrivals for event in gpu.submit(work, at)]
    while (at := gpu.next_at()) is not None:
        events += gpu.advance(at)
    return events


@dataclass
class Load:
    """What closed-loop users saw."""

    seconds: float
    first_token_s: list[float] = field(default_factory=list)
    embeddings: int = 0

    @property
    def first_token_p95_s(self) -> float:
        return sorted(self.first_token_s)[int(0.95 * len(self.first_token_s))]

    @property
    def embeddings_per_s(self) -> float:
        return self.embeddings / self.seconds


@functools.cache
def closed_loop(
    spec: GpuSpec, *, chats: int = 0, storm: int = 0, think_s: float = 0.0, seconds: float = 40.0
) -> Load:
    """Keep `chats` chats (100 tokens in, 30 out) and `storm` requests of 16 texts going."""
    gpu, load, tie = Gpu(spec), Load(seconds), itertools.count()
    due = [(0.013 * i, next(tie), True) for i in range(chats)]
    due += [(0.0011 * i, next(tie), False) for i in range(storm)]
    heapq.heapify(due)
    while True:
        step_at = gpu.next_at()
        arrival_at = due[0][0] if due else None
        at = min(at for at in (step_at, arrival_at) if at is not None)
        if at > seconds:
            return load
        if arrival_at == at:
            chat = heapq.heappop(due)[2]
            events = gpu.submit(ChatSequence(100, 30) if chat else EmbeddingJob((40,) * 16), at)
        else:
            events = gpu.advance(at)
        for event in events:
            work = event.work
            if isinstance(work, EmbeddingJob):
                load.embeddings += 1
                heapq.heappush(due, (event.at + 0.002, next(tie), False))
                continue
            if work.generated == 1:
                load.first_token_s.append(event.at - work.arrived_at)
            if work.finished:
                heapq.heappush(due, (event.at + 0.002 + think_s, next(tie), True))
