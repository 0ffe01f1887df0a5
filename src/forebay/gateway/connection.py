"""One client's connection: HTTP/1.1, and when a request is served.

Theory of operation. A request is read whole, then a task serves it, then comes the next one; what a
client sends ahead is read meanwhile, up to a bound, so that its leaving is seen at once. A client
that leaves while it is answered ends the task: that is cancelled, and everything unwinds from
there, whatever is being waited for. One timer sees to it that nothing lasts for ever:

    now                                        may last
    ----------------------------------------   ------------------------------------------
    nothing of a request is here               `_KEEP_ALIVE_S`; the first, `_PATIENCE_S`
    a head has begun                           `_PATIENCE_S`
    a body is on its way                       the stall time, from one read to the next
    it is served, and the client keeps up      as long as it takes
    it is served, and the client takes none    the stall time
    all is written, and has yet to be sent     `_PATIENCE_S`, from one look to the next

A refusal that comes before the body does not wait for it; but the body is still read, and thrown
away, for a while: closing with bytes unread would reset the connection, and the client might lose
the answer (RFC 9112 section 9.6).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING, cast

from forebay.adapters.upstream.deadline import Deadline
from forebay.core.model import Reason
from forebay.gateway.look import too_large
from forebay.gateway.reader import RequestReader
from forebay.gateway.refusal import Refused, internal_error
from forebay.gateway.responder import Responder

if TYPE_CHECKING:
    from collections.abc import Generator

    from forebay.gateway.front import Front, Handler
    from forebay.gateway.message import Request

_log = logging.getLogger(__name__)

# Clients that pool connections keep them for up to a minute or so; it is for them to close.
_KEEP_ALIVE_S = 75.0
_PATIENCE_S = 60.0
# For a client that sends on although it has been refused.
_LINGER_S = 5.0
# Read ahead of the request that is served. Beyond that nothing more is read, and that the client
# leaves is seen by writing to it alone.
_MOST_AHEAD = 16
_MOST_AHEAD_BYTES = 64 * 1024
# Closing then resets the connection.
_NO_LINGER = struct.pack("ii", 1, 0)


class ClientConnection(asyncio.Protocol):
    """One client's connection.

    Args:
        front: serves the requests.

    Attributes:
        transport: of the connection.
        task: serves a request, if one is served.
        room: what to await before more is written; None while the client keeps up.
        stopping: no request may follow the one that is served.
    """

    transport: asyncio.Transport

    def __init__(self, front: Front) -> None:
        self._front = front
        self._loop = front.loop
        self._deadline = Deadline(front.loop, self._on_deadline)
        self._reader: RequestReader | None = RequestReader(self)
        self._incoming: Incoming | None = None
        self._ahead: deque[Incoming] = deque()
        self._serving: Incoming | None = None
        self._reading = True
        self._gone = False
        self._stalled = False  # the client was given up: it did not go on reading
        self._unsent: float = inf  # bytes, when that was looked at last
        self.task: asyncio.Task[None] | None = None
        self.room: Room | None = None
        self.stopping = False

    # -- what the loop calls ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect a request."""
        self.transport = cast("asyncio.Transport", transport)
        self._front.connections.add(self)
        self._deadline.set(_PATIENCE_S)

    def data_received(self, data: bytes) -> None:
        """Read."""
        reader = self._reader
        if reader is None:
            return
        was_in_head = reader.in_head
        try:
            reader.feed(data)
        except Refused as refused:
            self._refuse_nonsense(refused)
            return
        if self.task is None:
            if self._incoming is not None:
                self._deadline.set(self._front.stall_s)
            elif reader.in_head and not was_in_head:
                self._deadline.set(_PATIENCE_S)

    def eof_received(self) -> None:
        """A client that sends no more has left, unless all of its answer is on its way."""
        if self._is_answering():
            self._leave()
            self.transport.abort()
        else:
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let everything end."""
        del exc
        self._front.left(self)
        self._deadline.close()
        self._stop_reading()
        self._leave()
        if self.room is not None:
            self.room.open()

    def pause_writing(self) -> None:
        """Wait for the client, but not for ever."""
        self.room = Room()
        if self.task is not None:
            self._deadline.set(self._front.stall_s)

    def resume_writing(self) -> None:
        """Go on."""
        if self.room is not None:
            self.room.open()
            self.room = None
        if self.task is not None:
            self._deadline.clear()

    # -- what the reader calls -------------------------------------------------------------------

    def on_head(self, request: Request, *, is_http_1_1: bool, keep_alive: bool) -> None:
        """See who serves the request, or refuse it before its body is read."""
        front = self._front
        responder = Responder(
            self,
            front.date,
            head_only=request.method == b"HEAD",
            chunks=is_http_1_1,
            keep_alive=keep_alive,
        )
        incoming = self._incoming = Incoming(request, responder)
        try:
            incoming.handler = front.handler(request)
        except Refused as refused:
            self._refuse_unread(incoming, refused)
            return
        if request.fields.get(b"expect", b"").lower() == b"100-continue" and self.task is None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, piece: bytes) -> None:
        """Collect it, unless it is too large."""
        incoming = self._incoming
        if incoming is None or incoming.unread is not None:
            return
        incoming.body.append(piece)
        incoming.body_bytes += len(piece)
        limit = self._front.body_limit_bytes
        if incoming.body_bytes > limit:
            self._refuse_unread(incoming, too_large(limit))
        elif self.task is not None and incoming.body_bytes > _MOST_AHEAD_BYTES:
            self._pause_reading()

    def on_end(self) -> None:
        """Serve the request when its turn has come."""
        incoming, self._incoming = self._incoming, None
        if incoming is None:
            return
        if incoming.unread is None:
            body = incoming.body
            incoming.request.body = body[0] if len(body) == 1 else b"".join(body)
            self._line_up(incoming)
        else:
            incoming.unread.set_result(None)
            self._stop_reading()  # it closes behind a refusal

    # -- one request after the other -------------------------------------------------------------

    def _line_up(self, incoming: Incoming) -> None:
        if self.task is None:
            self._begin(incoming)
        else:
            self._ahead.append(incoming)
            if len(self._ahead) >= _MOST_AHEAD:
                self._pause_reading()

    def _begin(self, incoming: Incoming) -> None:
        self._serving = incoming
        if self.room is None:
            self._deadline.clear()
        else:  # an answer before this one has not been taken yet
            self._deadline.set(self._front.stall_s)
        self.task = self._loop.create_task(self._serve(incoming))

    async def _serve(self, incoming: Incoming) -> None:
        request, responder = incoming.request, incoming.responder
        try:
            await incoming.handler(request, responder)
        except asyncio.CancelledError:
            if not (self._gone or self._stalled):
                refused = Refused(503, "shutting down", code=Reason.SHUTTING_DOWN)
                await _break_off(refused, responder)
                raise
        except Exception:  # noqa: BLE001 - whatever it is, it is logged and the client hears
            _log.exception("%r %r: cannot be served", request.method, request.path)
            await _break_off(internal_error(), responder)
        finally:
            self._served(responder)

    def _served(self, responder: Responder) -> None:
        """Go on with what comes next, if anything may."""
        self.task = self._serving = None
        if self._gone:
            return
        if self._stalled:  # closing would wait for ever for the client to read what is left
            self.transport.abort()
        elif self.transport.is_closing() or self.stopping or not responder.complete:
            self._close()
        else:
            self._resume_reading()
            if self._ahead:
                self._begin(self._ahead.popleft())
            elif self._incoming is not None:
                self._deadline.set(self._front.stall_s)
            elif self._reader is not None and self._reader.in_head:
                self._deadline.set(_PATIENCE_S)
            else:
                self._deadline.set(_KEEP_ALIVE_S)

    def _is_answering(self) -> bool:
        return self._serving is not None and not self._serving.responder.complete

    # -- refusals of what has not been read --------------------------------------------------------

    def _refuse_unread(self, incoming: Incoming, refused: Refused) -> None:
        incoming.unread = self._loop.create_future()
        incoming.handler = partial(_answer_unread, refused, incoming.unread)
        incoming.body = []
        self._line_up(incoming)

    def _refuse_nonsense(self, refused: Refused) -> None:
        """Refuse what is no request, and close the connection."""
        incoming = self._incoming
        self._stop_reading()
        if incoming is not None and incoming.unread is not None:
            incoming.unread.set_result(None)
        elif self.task is not None:
            # Behind a request that is served, it would be read as part of that one's answer.
            self._leave()
            self._close()
        elif not self.transport.is_closing():
            responder = incoming.responder if incoming else self._plain_responder()
            responder.start(refused.status, refused.headers([(b"connection", b"close")]))
            responder.end(refused.body)
            self._close()

    def _plain_responder(self) -> Responder:
        return Responder(self, self._front.date, head_only=False, chunks=True, keep_alive=False)

    # -- the end -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """The server stops: close now, or behind the answers to what has come."""
        self.stopping = True
        if self.task is None and self._incoming is None:
            self._close()

    def reset(self) -> None:
        """Close so that the client sees that it did not get everything."""
        if not self.transport.is_closing():
            accepted = self.transport.get_extra_info("socket")
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self.transport.abort()

    def _leave(self) -> None:
        """The client has left: nobody waits for an answer any more."""
        self._gone = True
        self._ahead.clear()
        if self.task is not None and self._is_answering():
            self.task.cancel()

    def _on_deadline(self) -> None:
        if self.transport.is_closing():
            self._flush()
        elif self.task is not None:
            self._stalled = True
            self.task.cancel()
        elif self._incoming is not None:
            seconds = self._front.stall_s
            message = f"no more of the request came within {seconds:g} s"
            self._refuse_unread(self._incoming, Refused(408, message, code="stalled"))
        else:
            self._close()

    def _close(self) -> None:
        """Close once everything is sent, or nothing more of it is taken."""
        self._stop_reading()
        self.transport.close()
        self._unsent = inf
        self._flush()

    def _flush(self) -> None:
        left = self.transport.get_write_buffer_size()
        if 0 < left < self._unsent:
            self._unsent = left
            self._deadline.set(_PATIENCE_S)
        else:
            self.transport.abort()

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self.transport.resume_reading()


class Incoming:
    """A request on its way in, and how it will be answered.

    Attributes:
        handler: serves it.
        body: the pieces that have come.
        body_bytes: how much they are.
        unread: done when the rest of a refused request's body has come; None if it is not refused.
    """

    __slots__ = ("body", "body_bytes", "handler", "request", "responder", "unread")

    handler: Handler

    def __init__(self, request: Request, responder: Responder) -> None:
        self.request = request
        self.responder = responder
        self.body: list[bytes] = []
        self.body_bytes = 0
        self.unread: asyncio.Future[None] | None = None


class Room:
    """Awaited by who would write on to a client that has not taken what was written."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def open(self) -> None:
        """The client has taken it, or is gone."""
        self._event.set()

    def __await__(self) -> Generator[None, None, None]:
        yield from self._event.wait().__await__()


async def _answer_unread(
    refused: Refused, unread: asyncio.Future[None], request: Request, responder: Responder
) -> None:
    """Refuse a request of which the body is not read; the end of the answer closes."""
    del request
    responder.start(refused.status, refused.headers([(b"connection", b"close")]))
    await responder.write(refused.body)
    await asyncio.wait([unread], timeout=_LINGER_S)
    await responder.end()


async def _break_off(refused: Refused, responder: Responder) -> None:
    """Answer a request that is not served to its end, as far as that is still possible."""
    if not responder.complete:
        await refused.answer(responder, [])
