"""Comments in a stream that has nothing to say yet, so that nobody on the way gives it up.

Sending the first one commits the response to status 200; until then a refusal keeps its status.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.proxy.message import Headers, Responder

_COMMENT = b": keep-alive\n\n"
EVENT_STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]


class KeepAlive:
    """Sends a comment every `interval_s` until it is stopped; costs one timer while it is not due.

    Args:
        responder: whose stream it is.
        headers: the gateway's own, for the case that the first comment starts the response.
        interval_s: seconds between comments.
    """

    __slots__ = ("_headers", "_interval_s", "_loop", "_responder", "_task", "_timer")

    def __init__(self, responder: Responder, headers: Headers, interval_s: float) -> None:
        self._responder = responder
        self._headers = headers
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(interval_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._task = self._loop.create_task(self._comment())

    async def _comment(self) -> None:
        if not self._responder.started:
            self._responder.event_stream = True
            self._responder.start(200, EVENT_STREAM + self._headers)
        while True:
            await self._responder.write(_COMMENT)
            await asyncio.sleep(self._interval_s)

    async def stop(self) -> None:
        """Send no more. When this returns the response is the caller's alone."""
        self.cancel()
        if self._task is not None:
            # Not `await task`: that could not tell its end from the end of whoever waits for it.
            await asyncio.wait([self._task])
            self._task = None

    def cancel(self) -> None:
        """Send no more, without waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
