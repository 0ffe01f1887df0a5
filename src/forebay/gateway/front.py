"""What every client's connection shares: who serves which request, and within which bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from forebay.gateway import asgi
from forebay.gateway.responder import Date, Responder
from forebay.proxy.look import check_path, too_large
from forebay.proxy.message import Request

if TYPE_CHECKING:
    from forebay.gateway.connection import ClientConnection
    from forebay.gateway.keys import Keys
    from forebay.proxy.proxy import Proxy

# Answers a request; what it raises is logged, and the client is told that it failed.
Handler = Callable[[Request, Responder], Awaitable[None]]

_DATA_PLANE = b"/v1/"
_MODELS = b"/v1/models"


class Front:
    """What every client's connection shares.

    Args:
        proxy: the data plane.
        admin: an ASGI application for everything else.
        keys: who may call.
        body_limit_bytes: the largest request body.
        stall_s: how long a client may pause in its request, or leave an answer unread.

    Attributes:
        connections: all that are open.
        stopping: the server stops; no request may follow on a connection.
    """

    def __init__(
        self, proxy: Proxy, admin: asgi.App, keys: Keys, *, body_limit_bytes: int, stall_s: float
    ) -> None:
        self._proxy = proxy
        self._pages: Handler = partial(asgi.serve, admin)
        self._keys = keys
        self.body_limit_bytes = body_limit_bytes
        self.stall_s = stall_s
        self.loop = asyncio.get_running_loop()
        self.date = Date(self.loop.time)
        self.stopping = False
        self.connections: set[ClientConnection] = set()
        self._empty = asyncio.Event()

    def handler(self, request: Request) -> Handler:
        """Who serves a request, judged by its head alone.

        Raises:
            Refused: nobody.
        """
        size = request.fields.get(b"content-length")
        if size is not None and int(size) > self.body_limit_bytes:
            raise too_large(self.body_limit_bytes)
        path = request.path
        if not path.startswith(_DATA_PLANE):
            return self._pages
        if b"%" in path:
            path = unquote_to_bytes(path)
        if path.startswith(_MODELS):
            return self._pages
        check_path(path)
        caller = self._keys.caller(request.headers)
        return partial(self._proxy.handle, caller)

    def left(self, connection: ClientConnection) -> None:
        """A connection is closed."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    async def empty(self) -> None:
        """Wait until no connection is open."""
        while self.connections:
            self._empty.clear()
            await self._empty.wait()

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The requests that are served."""
        return {c.task for c in self.connections if c.task is not None}
