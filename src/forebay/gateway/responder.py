"""Answers over ASGI, and notices clients that do not take them."""

from __future__ import annotations

from email.utils import formatdate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence

    from forebay.gateway.message import Headers

    Message = MutableMapping[str, Any]
    Send = Callable[[Message], Awaitable[None]]


class AsgiResponder:
    """Answers over ASGI.

    Attributes:
        waits_since: when a wait for the client began that goes on, for a piece of its request or
            for it to make room for the answer; else 0.
        stalled: the client was given up because of such a wait.
    """

    __slots__ = ("_clock", "_date", "_send", "event_stream", "stalled", "started", "waits_since")

    def __init__(self, send: Send, clock: Callable[[], float], date: Date) -> None:
        self._send = send
        self._clock = clock
        self._date = date
        self.started = False
        self.event_stream = False
        self.waits_since = 0.0
        self.stalled = False

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Send status and headers."""
        self.started = True
        headers = self._date.added_to(headers)
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, piece: bytes) -> None:
        """Send a piece of the body; returns when the client has room for more."""
        self.waits_since = self._clock()
        try:
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            self.waits_since = 0.0

    async def end(self, piece: bytes = b"") -> None:
        """Send the last piece, and the end."""
        self.waits_since = self._clock()
        try:
            await self._send({"type": "http.response.body", "body": piece})
        finally:
            self.waits_since = 0.0

    def cut(self) -> None:
        """Nothing: an answer that is not ended makes the server close the connection."""


class Date:
    """The date header that every answer has (RFC 9110 section 6.6.1), made once a second."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._second = -1
        self._text = b""

    def added_to(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """The headers, with a date if there is none: an endpoint's own is kept."""
        dated = list(headers)
        if not any(name == b"date" for name, _ in dated):
            dated.append((b"date", self._now()))
        return dated

    def _now(self) -> bytes:
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._text = formatdate(usegmt=True).encode()
        return self._text


class StallTimer:
    """Cancels `task` when its client lets it wait for `stall_s`; one timer, whatever is waited for.

    It looks after the whole request, so that neither a read nor a write needs one of its own.
    """

    __slots__ = ("_handle", "_loop", "_responder", "_stall_s", "_task")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        responder: AsgiResponder,
        task: asyncio.Task[Any],
        stall_s: float,
    ) -> None:
        self._loop = loop
        self._responder = responder
        self._task = task
        self._stall_s = stall_s
        self._handle = loop.call_later(stall_s, self._check)

    def cancel(self) -> None:
        """Stop looking."""
        self._handle.cancel()

    def _check(self) -> None:
        since = self._responder.waits_since
        left = since + self._stall_s - self._loop.time() if since else self._stall_s
        if left > 0:
            self._handle = self._loop.call_later(left, self._check)
        else:
            self._responder.stalled = True
            self._task.cancel()
