"""The exact record of what was in flight on the emulated host, and how it ended.

A request is in flight from when its last byte was received until its response's last byte is handed
to the socket, or its connection is gone. Every request ends in exactly one way, so that at any
instant ``requests = inflight + finished + refused + faulted + aborted`` since the last reset.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from forebay.emulator.faults import EngineName

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.emulator.gpu import Gpu


class End(StrEnum):
    """How a request ended."""

    FINISHED = "finished"  # answered in full
    REFUSED = "refused"  # answered with an error of the engine's own: the request was wrong
    FAULTED = "faulted"  # a fault answered it or broke its response
    ABORTED = "aborted"  # the client went away


@dataclass(slots=True)
class _Tally:
    inflight: int = 0
    max_inflight: int = 0
    requests: int = 0
    ends: Counter[End] = field(default_factory=Counter)

    def begin(self) -> None:
        self.inflight += 1
        self.requests += 1
        self.max_inflight = max(self.max_inflight, self.inflight)

    def end(self, end: End) -> None:
        self.inflight -= 1
        self.ends[end] += 1

    def reset(self) -> None:
        self.max_inflight = self.requests = self.inflight
        self.ends.clear()

    def snapshot(self) -> dict[str, int]:
        return {
            "inflight": self.inflight,
            "max_inflight": self.max_inflight,
            "requests": self.requests,
            **{end.value: self.ends[end] for end in End},
        }


@dataclass(frozen=True, slots=True)
class Change:
    """The in-flight counts after a request came or ended."""

    at_s: float
    engine: EngineName
    inflight: int
    gpu_inflight: int


class Entry:
    """One request in flight. Only its first ending counts.

    Args:
        on_end: called with the first ending.
    """

    def __init__(self, on_end: Callable[[End], None]) -> None:
        self._on_end = on_end
        self._ended = False

    def end(self, end: End) -> None:
        """Tell how the request ended."""
        if not self._ended:
            self._ended = True
            self._on_end(end)


class Record:
    """Counts of requests by engine and for the GPU as a whole.

    Args:
        gpu: whose engines are reported along with the counts.
        clock: the model's time.
        timeline_length: changes to remember.
    """

    def __init__(self, gpu: Gpu, clock: Callable[[], float], timeline_length: int) -> None:
        self._gpu = gpu
        self._clock = clock
        self._tallies = {engine: _Tally() for engine in EngineName}
        self._joint = _Tally()
        self._timeline: deque[Change] = deque(maxlen=timeline_length)
        self._since_s = clock()
        self._counters_before = self._counters()

    def begin(self, engine: EngineName) -> Entry:
        """Count a request that was received in full; the entry is to be ended."""
        tally = self._tallies[engine]

        def end(how: End) -> None:
            tally.end(how)
            self._joint.end(how)
            self._note(engine)

        tally.begin()
        self._joint.begin()
        self._note(engine)
        return Entry(end)

    def reset(self) -> None:
        """Begin again: what is in flight stays so, and is the new maximum."""
        for tally in (*self._tallies.values(), self._joint):
            tally.reset()
        self._timeline.clear()
        self._since_s = self._clock()
        self._counters_before = self._counters()

    def snapshot(self) -> dict[str, Any]:
        """Return the counts since the last reset, and the engines' state now."""
        chat, embedding = self._gpu.chat, self._gpu.embedding
        state: dict[EngineName, dict[str, int]] = {
            EngineName.CHAT: {
                "sequences_running": len(chat.running),
                "sequences_waiting": len(chat.waiting),
                "kv_blocks_used": chat.used_blocks,
            },
            EngineName.EMBEDDING: {
                "texts_running": embedding.running_texts,
                "texts_waiting": len(embedding.waiting),
            },
        }
        counters = self._counters()
        engines = {
            engine.value: {
                **tally.snapshot(),
                "engine": state[engine]
                | {
                    name: value - self._counters_before[engine][name]
                    for name, value in counters[engine].items()
                },
            }
            for engine, tally in self._tallies.items()
        }
        return {
            "since_s": self._since_s,
            "now_s": self._clock(),
            **engines,
            "gpu": self._joint.snapshot(),
        }

    def timeline(self, last: int) -> list[dict[str, Any]]:
        """Return the latest changes of the in-flight counts, oldest first."""
        return [asdict(change) for change in tuple(self._timeline)[-last:]] if last else []

    def _counters(self) -> dict[EngineName, dict[str, int]]:
        return {
            EngineName.CHAT: asdict(self._gpu.chat.counters),
            EngineName.EMBEDDING: asdict(self._gpu.embedding.counters),
        }

    def _note(self, engine: EngineName) -> None:
        inflight = self._tallies[engine].inflight
        self._timeline.append(Change(self._clock(), engine, inflight, self._joint.inflight))
