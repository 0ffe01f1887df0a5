"""The way into a server, where things go wrong: refusals for load, outages, silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.model import Outcome

if TYPE_CHECKING:
    from random import Random

    from forebay.sim.server import Job, Server
    from forebay.sim.world import World

# A round trip on a local network: how long it takes to be told no.
_ROUND_TRIP_S = 0.001


class Door:
    """What stands between the network and one server.

    Args:
        world: its clock.
        server: what is behind it.
        rng: for refusals.

    Attributes:
        most: requests that it lets in at once; more are refused for load (429).
        refuses: the part of all requests that it refuses for load, whatever runs.
        retry_after_s: what a refusal asks for, if anything.
        down: connections are refused.
        hangs: requests are read and never answered.
    """

    def __init__(self, world: World, server: Server, rng: Random) -> None:
        self.server = server
        self.most: int | None = None
        self.refuses = 0.0
        self.retry_after_s: float | None = None
        self.down = False
        self.hangs = False
        self._world = world
        self._rng = rng
        self._inside: dict[Job, None] = {}

    def enter(self, job: Job) -> None:
        """Bring a request to the server, or have it told otherwise in a moment."""
        if self.down:
            self._world.after(_ROUND_TRIP_S, job.finished, Outcome.FAILURE)
        elif self._full() or (self.refuses and self._rng.random() < self.refuses):
            self._world.after(_ROUND_TRIP_S, job.finished, Outcome.CONGESTION, self.retry_after_s)
        else:
            self._inside[job] = None
            if not self.hangs:
                self.server.submit(job)

    def leave(self, job: Job) -> None:
        """Note that a request has ended, however that came about."""
        self._inside.pop(job, None)

    def fail(self) -> None:
        """Go down, with all that is inside."""
        self.down = True
        for job in tuple(self._inside):
            self.server.abort(job)
            job.finished(Outcome.FAILURE)

    def recover(self) -> None:
        """Be as if nothing had ever been wrong."""
        self.down = self.hangs = False
        self.most, self.refuses, self.retry_after_s = None, 0.0, None

    def _full(self) -> bool:
        return self.most is not None and len(self._inside) >= self.most
