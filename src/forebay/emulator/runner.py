"""Runs the GPU model on the event loop's clock, with one timer for its next event."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.emulator.gpu import Event, Gpu, Work


class Progress:
    """How far some work got, for the one who waits for it."""

    def __init__(self) -> None:
        self._steps = 0
        self._wanted = 0
        self._reached = asyncio.Event()

    async def reach(self, steps: int) -> None:
        """Wait until the work got on `steps` times in all."""
        if self._steps < steps:
            self._wanted = steps
            self._reached.clear()
            await self._reached.wait()

    def note(self) -> None:
        """Tell that the work got on once more."""
        self._steps += 1
        if self._steps >= self._wanted:
            self._reached.set()


class GpuRunner:
    """A GPU in real time. If the loop is late the model catches up, at its own exact instants.

    Args:
        gpu: the model; this object is the only one to drive it.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._loop = asyncio.get_running_loop()
        self._started_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._progress: dict[Work, Progress] = {}

    def now(self) -> float:
        """Return seconds since the start: the model's time."""
        return self._loop.time() - self._started_at

    @contextmanager
    def running(self, work: Work) -> Iterator[Progress]:
        """Submit some work; leaving the block drops what is left of it.

        Raises:
            ValueError: see `Gpu.submit`.
        """
        events = self.gpu.submit(work, self.now())
        progress = self._progress[work] = Progress()
        self._note(events)
        try:
            yield progress
        finally:
            del self._progress[work]
            self._note(self.gpu.abort(work, self.now()))

    def catch_up(self) -> None:
        """Bring the model to now, e.g. before reading from it."""
        self._note(self.gpu.advance(self.now()))

    def close(self) -> None:
        """Stop the clock."""
        if self._timer is not None:
            self._timer.cancel()

    def _note(self, events: list[Event]) -> None:
        for event in events:
            progress = self._progress.get(event.work)
            if progress is not None:
                progress.note()
        self.close()
        next_at = self.gpu.next_at()
        if next_at is not None:
            self._timer = self._loop.call_at(self._started_at + next_at, self.catch_up)
