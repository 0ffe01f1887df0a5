"""The pages that are no part of the data plane: an ASGI application, asked for one request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from forebay.proxy.message import Request, Responder

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


async def serve(app: App, request: Request, responder: Responder) -> None:
    """Have `app` answer a request.

    The end of the client is no message: it cancels this.
    """
    body = [request.body]

    async def receive() -> Message:
        if not body:
            await asyncio.get_running_loop().create_future()  # for ever: see above
        return {"type": "http.request", "body": body.pop(), "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            responder.start(message["status"], message["headers"])
        elif message.get("more_body"):
            await responder.write(message.get("body", b""))
        else:
            await responder.end(message.get("body", b""))

    await app(_scope(request), receive, send)


def _scope(request: Request) -> dict[str, Any]:
    path = request.path.decode("latin-1")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method.decode("latin-1"),
        "scheme": "http",
        "path": unquote(path),
        "raw_path": request.path,
        "query_string": request.query,
        "root_path": "",
        "headers": request.headers,
        "client": None,
        "server": None,
    }
