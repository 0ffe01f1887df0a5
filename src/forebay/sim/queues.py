"""Plain servers of queueing theory: c servers behind one queue, and processor sharing.

Their closed forms are known, so the clock, the driver and the GPU can be checked against them; and
a `Fifo` has the sharpest knee there is, at `servers`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.core.model import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.sim.gpu import Gpu, Task
    from forebay.sim.server import Job, Size
    from forebay.sim.world import Event, World


@dataclass(frozen=True, slots=True)
class FifoSpec:
    """`servers` requests at once, the rest in line.

    Args:
        servers: how many, ≥ 1.
        service_s: what one takes, from its size.
    """

    servers: int
    service_s: Callable[[Size], float]

    def build(self, world: World, gpu: Gpu) -> Fifo:
        """Make the server. It follows the GPU's capacity, drift and noise, and shares nothing."""
        return Fifo(self, world, gpu)


class Fifo:
    """A queue with some servers, first come, first served."""

    def __init__(self, spec: FifoSpec, world: World, gpu: Gpu) -> None:
        self._spec = spec
        self._world = world
        self._gpu = gpu
        self._servers = spec.servers
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, Event] = {}

    @property
    def servers(self) -> int:
        """How many requests it serves at once; may be moved, and stops nothing that runs."""
        return self._servers

    @servers.setter
    def servers(self, servers: int) -> None:
        self._servers = servers
        self._serve()

    def submit(self, job: Job) -> None:
        """Take a request in."""
        self._waiting.append(job)
        self._serve()

    def abort(self, job: Job) -> None:
        """Drop a request."""
        if job in self._running:
            self._running.pop(job).cancel()
            self._serve()
        elif job in self._waiting:
            self._waiting.remove(job)

    def signal(self, now: float) -> Signal:
        """Tell how many run and wait."""
        waiting = len(self._waiting)
        return Signal(
            "fifo",
            now,
            running=len(self._running),
            waiting=waiting,
            slots=self._servers,
            saturated=waiting > 0,
        )

    def _serve(self) -> None:
        while self._waiting and len(self._running) < self._servers:
            job = self._waiting.popleft()
            service_s = self._spec.service_s(job.size) * self._gpu.slowness()
            self._running[job] = self._world.after(service_s, self._end, job)

    def _end(self, job: Job) -> None:
        del self._running[job]
        self._serve()
        job.finished()


@dataclass(frozen=True, slots=True)
class SharedSpec:
    """Everybody at once, all at the same speed.

    Args:
        service_s: what one takes alone, from its size.
    """

    service_s: Callable[[Size], float]

    def build(self, world: World, gpu: Gpu) -> Shared:  # noqa: ARG002 - the protocol's signature
        """Make the server; each request is a task of the GPU."""
        return Shared(self, gpu)


class Shared:
    """Processor sharing: n requests at 1/n of the speed each."""

    def __init__(self, spec: SharedSpec, gpu: Gpu) -> None:
        self._spec = spec
        self._gpu = gpu
        self._running: dict[Job, Task] = {}

    def submit(self, job: Job) -> None:
        """Take a request in; it starts at once."""
        self._running[job] = self._gpu.start(self._spec.service_s(job.size), lambda: self._end(job))

    def abort(self, job: Job) -> None:
        """Drop a request."""
        if job in self._running:
            self._gpu.stop(self._running.pop(job))

    def signal(self, now: float) -> Signal:
        """Tell how many run; nothing ever waits."""
        return Signal("shared", now, running=len(self._running), waiting=0, saturated=False)

    def _end(self, job: Job) -> None:
        del self._running[job]
        job.finished()
