"""The front: ASGI to the proxy and the admin pages, on the bare interface for speed.

It reads bodies within their limit, and has requests end with their clients; see
`gateway.presence`, which `gateway.protocol` provides.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from forebay.core.model import Reason
from forebay.gateway.look import too_large
from forebay.gateway.message import Request
from forebay.gateway.presence import presence_of
from forebay.gateway.refusal import Refused, internal_error
from forebay.gateway.responder import Date, Responder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence

    from forebay.gateway.keys import Keys
    from forebay.gateway.presence import Presence
    from forebay.gateway.proxy import Proxy

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)

_DATA_PLANE = "/v1/"
_MODELS = "/v1/models"
# For a client that sends on although it has been refused.
_LINGER_S = 5.0


class Application:
    """The gateway as an ASGI application.

    Args:
        proxy: the data plane.
        admin: an ASGI application for everything else.
        keys: who may call.
        body_limit_bytes: the largest request body.
        stall_s: how long a client may pause in its request, or leave an answer unread.
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
        self._date = Date(self._loop.time)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        path = scope["path"]
        client = presence_of(scope)
        responder = Responder(client.cycle, self._date)
        try:
            client.guard(self._stall_s)
            if path.startswith(_DATA_PLANE) and not path.startswith(_MODELS):
                await self._serve(scope, receive, responder, client)
            else:
                await self._serve_admin(scope, receive, send)
        except asyncio.CancelledError:
            if not (client.gone or client.stalled):
                refused = Refused(503, "shutting down", code=Reason.SHUTTING_DOWN)
                await _break_off(refused, responder, client)
                raise
            client.task.uncancel()  # nobody waits for an answer any more
        finally:
            client.release()
        if client.stalled:
            # Closing would wait for ever for the client to read what is left.
            client.cycle.transport.abort()

    async def _serve_admin(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        try:
            await self._admin(scope, receive, self._dated(send))
        except Exception:  # noqa: BLE001 - the application has answered, and raises it for the log
            _log.exception("%s %s: cannot be served", scope["method"], scope["path"])

    def _dated(self, send: Send) -> Send:
        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"date", self._date.value())]
            await send(message)

        return send_dated

    async def _serve(
        self,
        scope: MutableMapping[str, Any],
        receive: Receive,
        responder: Responder,
        client: Presence,
    ) -> None:
        headers = scope["headers"]
        try:
            _check_path(scope["path"])
            caller = self._keys.caller(headers)
            if client.request_is_whole:  # nearly always
                body = bytes(client.cycle.body)
                client.cycle.body = bytearray()  # one of them is enough to keep
                if len(body) > self._body_limit_bytes:
                    raise too_large(self._body_limit_bytes)
            else:
                body = await self._body(headers, receive)
        except Refused as refused:
            await self._refuse_unread(refused, receive, responder)
            return
        request = Request(scope["method"], scope["raw_path"], scope["query_string"], headers, body)
        try:
            await self._proxy.handle(request, responder, caller)
        except Exception:  # noqa: BLE001 - whatever it is, it is logged and the client hears
            _log.exception("%s %s: cannot be served", scope["method"], scope["path"])
            await _break_off(internal_error(), responder, client)

    async def _body(self, headers: Sequence[tuple[bytes, bytes]], receive: Receive) -> bytes:
        """The whole body, unless it is over the limit; that is seen before it is read whole."""
        limit = self._body_limit_bytes
        for name, value in headers:
            if name == b"content-length" and int(value) > limit:
                raise too_large(limit)
        pieces: list[bytes] = []
        size = 0
        more = True
        try:
            async with asyncio.timeout(None) as patience:
                while more:
                    patience.reschedule(self._loop.time() + self._stall_s)
                    message = await receive()
                    pieces.append(message["body"])
                    size += len(pieces[-1])
                    more = message["more_body"]
                    if size > limit:
                        raise too_large(limit)
        except TimeoutError:
            raise Refused(
                408, f"no more of the request came within {self._stall_s:g} s", code="stalled"
            ) from None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _refuse_unread(
        self, refused: Refused, receive: Receive, responder: Responder
    ) -> None:
        """Refuse a request of which the body is not read.

        Closing with bytes unread would reset the connection, and the client might lose the answer;
        so they are thrown away for a while (RFC 9112 section 9.6). The answer is whole by its
        content-length before it is ended, which is what closes the connection.
        """
        await responder.start(refused.status, refused.headers([(b"connection", b"close")]))
        await responder.write(refused.body)
        try:
            async with asyncio.timeout(_LINGER_S):
                while (await receive()).get("more_body"):
                    pass
        except TimeoutError:
            pass
        await responder.end()


async def _break_off(refused: Refused, responder: Responder, client: Presence) -> None:
    """Answer a request that is not served to its end, as far as that is still possible."""
    cycle = client.cycle
    answered_by_admin = cycle.response_started and not responder.started
    if not (cycle.response_complete or answered_by_admin):
        await refused.answer(responder, [])


def _check_path(path: str) -> None:
    """Keep callers within the API: an endpoint's other pages, as /v1/../sleep, are not for them.

    Raises:
        Refused: the path has dot segments.
    """
    if "/." in path and {".", ".."} & set(path.split("/")):
        raise Refused(400, "the path must not have '.' or '..' in it", code="invalid_path")
