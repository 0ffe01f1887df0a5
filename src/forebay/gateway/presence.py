"""Whether a request's client is there, and keeps up.

The connection knows first, so it tells; nobody has to watch. A client that leaves, or that does
not read for too long, ends its request's task: that is cancelled, and everything unwinds from
there, whatever is being waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import MutableMapping

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Presence:
    """One client, for the time of one request.

    Args:
        loop: of the connection.
        cycle: uvicorn's account of the request.

    Attributes:
        cycle: likewise.
        task: serves the request.
        gone: the client has left.
        stalled: the client was given up: it did not go on reading.
    """

    __slots__ = ("_guards", "_loop", "_stall_s", "_timer", "cycle", "gone", "stalled", "task")

    task: asyncio.Task[None]

    def __init__(self, loop: asyncio.AbstractEventLoop, cycle: RequestResponseCycle) -> None:
        self._loop = loop
        self.cycle = cycle
        self._guards = False
        self._stall_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.gone = False
        self.stalled = False

    @property
    def request_is_whole(self) -> bool:
        """Whether all of the request has arrived."""
        return not self.cycle.more_body

    # For the application.

    def guard(self, stall_s: float) -> None:
        """From here on end the task when the client leaves, or leaves an answer for `stall_s`."""
        self._guards = True
        self._stall_s = stall_s
        if self.gone:
            self.task.cancel()
        elif self.cycle.flow.write_paused:  # by an answer before this one
            self.fall_behind()

    def release(self) -> None:
        """The request is served; whatever the client does now is no matter."""
        self._guards = False
        self._stop_timer()

    # For the connection.

    def leave(self) -> None:
        """The client has left."""
        self.gone = True
        if self._guards:
            self.task.cancel()

    def fall_behind(self) -> None:
        """The client does not take what is sent as fast as it is sent."""
        if self._guards and self._timer is None:
            self._timer = self._loop.call_later(self._stall_s, self._give_up)

    def catch_up(self) -> None:
        """The client has taken what was sent."""
        if self._guards:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        self.stalled = True
        self.task.cancel()


def presence_of(scope: MutableMapping[str, Any]) -> Presence:
    """The presence of a request's client, which `gateway.protocol` puts into its scope."""
    found: Presence = scope["presence"]
    return found
