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
    the rest of a refused request comes        `_LINGER_S`
    all is written, and has yet to be sent     `_PATIENCE_S`, from one look to the next

A refusal that comes before the body does not wait for it; but the body is still read, and thrown
away, for a while: closing with bytes unread would reset the connection, and the client might lose
the answer (RFC 9112 section 9.6).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from forebay.adapters.upstream.deadline import Deadline
from forebay.gateway.outgoing import Outgoing
from forebay.gateway.reader import RequestReader
from forebay.gateway.responder import Responder
from forebay.gateway.turns import Incoming, Turns
from forebay.proxy.look import too_large
from forebay.proxy.refusal import Refused, answer_unread, shutting_down, tell_and_close

if TYPE_CHECKING:
    from forebay.gateway.front import Front
    from forebay.proxy.message import Request

# Clients that pool connections keep them for up to a minute or so; it is for them to close.
_KEEP_ALIVE_S = 75.0
_PATIENCE_S = 60.0
_CONTINUE = b"100-continue"
# Read ahead of the request that is served. Beyond one of them nothing more is read, and that the
# client leaves is seen by writing to it alone.
_MOST_AHEAD = 16
_MOST_AHEAD_BYTES = 64 * 1024


class ClientConnection(asyncio.Protocol):
    """One client's connection.

    Args:
        front: serves the requests.

    Attributes:
        outgoing: sends to the client.
        stopping: no request may follow the one that is served.
    """

    _transport: asyncio.Transport
    outgoing: Outgoing

    def __init__(self, front: Front) -> None:
        self._front = front
        self._loop = front.loop
        self._deadline = Deadline(front.loop, self._on_deadline)
        self._reader: RequestReader | None = RequestReader(self)
        self._incoming: Incoming | None = None
        self._turns = Turns(front.loop, self._on_served)
        self._reading = True
        self.stopping = False

    @property
    def task(self) -> asyncio.Task[None] | None:
        """Serves a request, if one is served."""
        return self._turns.task

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        return self._turns.gone

    # -- what the loop calls ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect a request."""
        self._transport = cast("asyncio.Transport", transport)
        self.outgoing = Outgoing(self._transport)
        self.stopping = self._front.stopping
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
            if self._reader is not None:  # else it is behind what has been refused already
                self._refuse_nonsense(refused)
            return
        if self.task is not None:
            if self._incoming is not None or self._turns.ahead:
                self._pace_reading()
        elif self._incoming is not None:
            self._deadline.set(self._front.stall_s)
        elif reader.in_head and not was_in_head:
            self._deadline.set(_PATIENCE_S)

    def eof_received(self) -> None:
        """A client that sends no more has left, unless all of its answer is on its way."""
        if self._turns.answering:
            self._turns.leave()
            self.outgoing.abort()
        else:
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let everything end."""
        del exc
        self._front.left(self)
        self._deadline.close()
        self._stop_reading()
        self._incoming = None
        self._turns.leave()
        self.outgoing.catch_up()

    def pause_writing(self) -> None:
        """Wait for the client, but not for ever."""
        self.outgoing.fall_behind()
        if self.task is not None:
            self._deadline.set(self._front.stall_s)

    def resume_writing(self) -> None:
        """Go on."""
        self.outgoing.catch_up()
        if self.task is not None and not self.outgoing.is_closing:
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
        expect = request.fields.get(b"expect")
        if expect is not None and is_http_1_1:
            incoming.waits = expect.lower() == _CONTINUE
            if self.task is None:
                self._expect_body(incoming)

    def on_body(self, piece: bytes) -> None:
        """Collect it, unless it is too large."""
        incoming = self._incoming
        if incoming is None or incoming.unread is not None:
            return
        incoming.body += piece
        incoming.waits = False
        limit = self._front.body_limit_bytes
        if len(incoming.body) > limit:
            self._refuse_unread(incoming, too_large(limit))

    def on_end(self) -> None:
        """Serve the request when its turn has come."""
        incoming, self._incoming = self._incoming, None
        if incoming is None:
            return
        if incoming.unread is None:
            incoming.request.body = bytes(incoming.body)
            incoming.body.clear()
            self._line_up(incoming)
        else:
            incoming.unread.set_result(None)
            self._stop_reading()  # it closes behind a refusal

    # -- one request after the other -------------------------------------------------------------

    def _line_up(self, incoming: Incoming) -> None:
        if self.task is None:
            self._wait_for_client()
        self._turns.line_up(incoming)

    def _wait_for_client(self) -> None:
        """A request is served from here on; only its client may be waited for too long."""
        if self.outgoing.backlog is None:
            self._deadline.clear()
        else:  # an answer before this one has not been taken yet
            self._deadline.set(self._front.stall_s)

    def _on_served(self, responder: Responder) -> None:
        """Go on with what comes next, if anything may."""
        turns = self._turns
        if turns.gone:
            return
        if turns.stalled:  # closing would wait for ever for the client to read what is left
            self.outgoing.abort()
        elif self.outgoing.is_closing or self.stopping or not responder.complete:
            self._close()
        else:
            turns.begin_next()
            if not self._reading:
                self._pace_reading()
            if self.task is not None:
                self._wait_for_client()
            elif self._incoming is not None:
                self._expect_body(self._incoming)
            elif self._reader is not None and self._reader.in_head:
                self._deadline.set(_PATIENCE_S)
            else:
                self._deadline.set(_KEEP_ALIVE_S)

    # -- refusals of what has not been read --------------------------------------------------------

    def _refuse_unread(self, incoming: Incoming, refused: Refused) -> None:
        incoming.unread = self._loop.create_future()
        # Without its traceback, which would hold on to this connection.
        incoming.handler = partial(answer_unread, refused.with_traceback(None), incoming.unread)
        incoming.body.clear()
        self._line_up(incoming)

    def _refuse_nonsense(self, refused: Refused) -> None:
        """Refuse what is no request, and close the connection."""
        incoming = self._incoming
        self._stop_reading()
        if incoming is not None and incoming.unread is not None:
            incoming.unread.set_result(None)
        elif self.task is not None:
            # The request before it is to blame, as one that is longer than it says; behind the
            # beginning of an answer, though, it would be read as part of that.
            responder = self._turns.unanswered
            if responder is not None:
                tell_and_close(refused, responder)
            self._turns.leave()
            self._close()
        elif not self.outgoing.is_closing:
            tell_and_close(refused, Responder(self, self._front.date))
            self._close()

    # -- the end -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """The server stops: close now, or behind the answers to what has come."""
        self.stopping = True
        if self.task is None and self._incoming is None:
            self._close()

    def break_off(self) -> None:
        """The server has waited long enough: answer what has not been answered, now."""
        if self.task is not None:
            self.task.cancel()
        elif self._incoming is not None:
            self._refuse_unread(self._incoming, shutting_down())

    def _on_deadline(self) -> None:
        if self.outgoing.is_closing:
            self._flush()
        elif self.task is not None:
            self._turns.give_up()
        elif self._incoming is not None:
            seconds = self._front.stall_s
            message = f"no more of the request came within {seconds:g} s"
            self._refuse_unread(self._incoming, Refused(408, message, code="stalled"))
        else:
            self._close()

    def _close(self) -> None:
        """Close once everything is sent, or nothing more of it is taken."""
        self._stop_reading()
        self.outgoing.finish()
        self._flush()

    def _flush(self) -> None:
        if not self.outgoing.is_flushed():
            self._deadline.set(_PATIENCE_S)

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _expect_body(self, incoming: Incoming) -> None:
        if incoming.waits and incoming.unread is None:
            incoming.waits = False
            self.outgoing.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._deadline.set(self._front.stall_s)

    def _pace_reading(self) -> None:
        """Read on, unless enough is ahead of the request that is served."""
        ahead_bytes = self._turns.ahead_bytes + (len(self._incoming.body) if self._incoming else 0)
        reads = self.task is None or (
            self._turns.ahead < _MOST_AHEAD and ahead_bytes <= _MOST_AHEAD_BYTES
        )
        if reads is not self._reading:
            self._reading = reads
            if reads:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
