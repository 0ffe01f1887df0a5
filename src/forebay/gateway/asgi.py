"""The front: ASGI to the proxy and the admin pages, on the bare interface for speed.

It reads bodies within their limit, and sees to it that a client that leaves is noticed whatever
is being waited for: the request's task is cancelled, and everything unwinds from there.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from forebay.gateway.look import too_large
from forebay.gateway.message import Request
from forebay.gateway.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence

    from forebay.gateway.keys import Keys
    from forebay.gateway.proxy import Proxy

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)

_DATA_PLANE = "/v1/"
_MODELS = "/v1/models"


class AsgiResponder:
    """Answers over ASGI.

    Attributes:
        blocked_since: when a write began that the client has not made room for yet, else 0.
        stalled: the client was given up because it did not read.
    """

    __slots__ = ("_clock", "_send", "blocked_since", "event_stream", "stalled", "started")

    def __init__(self, send: Send, clock: Callable[[], float]) -> None:
        self._send = send
        self._clock = clock
        self.started = False
        self.event_stream = False
        self.blocked_since = 0.0
        self.stalled = False

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Send status and headers."""
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, piece: bytes) -> None:
        """Send a piece of the body; returns when the client has room for more."""
        self.blocked_since = self._clock()
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        self.blocked_since = 0.0

    async def end(self, piece: bytes = b"") -> None:
        """Send the last piece, and the end."""
        self.blocked_since = self._clock()
        await self._send({"type": "http.response.body", "body": piece})
        self.blocked_since = 0.0

    def cut(self) -> None:
        """Nothing: an answer that is not ended makes the server close the connection."""


class Gone(Exception):  # noqa: N818
    """The client left while its request was being read."""


class Application:
    """The gateway as an ASGI application.

    Args:
        proxy: the data plane.
        admin: an ASGI application for everything else.
        keys: who may call.
        body_limit_bytes: the largest request body.
        stall_s: how long a client may leave an answer unread.
    """

    def __init__(
        self, proxy: Proxy, admin: App, keys: Keys, *, body_limit_bytes: int, stall_s: float
    ) -> None:
        self._proxy = proxy
        self._admin = admin
        self._keys = keys
        self._body_limit_bytes = body_limit_bytes
        self._stall_s = stall_s
        self._loop = asyncio.get_running_loop()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        path = scope["path"]
        if not path.startswith(_DATA_PLANE) or path.startswith(_MODELS):
            await self._admin(scope, receive, send)
            return
        responder = AsgiResponder(send, self._loop.time)
        try:
            caller = self._keys.caller(scope["headers"])
            body = await self._body(scope["headers"], receive)
        except Refused as refused:
            await refused.answer(responder, [])
            return
        except Gone:
            return
        request = Request(
            scope["method"], scope["raw_path"], scope["query_string"], scope["headers"], body
        )
        await self._until_gone(self._proxy.handle(request, responder, caller), receive, responder)
        if responder.stalled:
            # Closing would wait for ever for the client to read what is left.
            scope["transport"].abort()

    async def _until_gone(
        self, work: Awaitable[None], receive: Receive, responder: AsgiResponder
    ) -> None:
        """Do `work`, and give it up when the client leaves or does not read."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a server runs each request in a task
        watcher = self._loop.create_task(_watch(receive, task))
        stall = _StallTimer(self._loop, responder, task, self._stall_s)
        try:
            await work
        except asyncio.CancelledError:
            if not (watcher.done() or responder.stalled):
                raise
            task.uncancel()  # nobody waits for an answer any more
        finally:
            watcher.cancel()
            stall.cancel()

    async def _body(self, headers: Sequence[tuple[bytes, bytes]], receive: Receive) -> bytes:
        """The whole body, unless it is over the limit; that is seen before it is read whole."""
        limit = self._body_limit_bytes
        for name, value in headers:
            if name == b"content-length" and int(value) > limit:
                raise too_large(limit)
        message = await receive()
        if not message.get("more_body"):
            body: bytes = message.get("body", b"")
            if message["type"] == "http.disconnect":
                raise Gone
            if len(body) > limit:
                raise too_large(limit)
            return body
        pieces = bytearray(message["body"])
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            pieces += message.get("body", b"")
            if len(pieces) > limit:
                raise too_large(limit)
        return bytes(pieces)


class _StallTimer:
    """Cancels `task` when the client has not read for `stall_s`; one timer, whatever is written."""

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
        self._handle.cancel()

    def _check(self) -> None:
        since = self._responder.blocked_since
        left = since + self._stall_s - self._loop.time() if since else self._stall_s
        if left > 0:
            self._handle = self._loop.call_later(left, self._check)
        else:
            self._responder.stalled = True
            self._task.cancel()


async def _watch(receive: Receive, task: asyncio.Task[Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()
