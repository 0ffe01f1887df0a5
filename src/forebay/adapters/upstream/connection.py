"""One connection to an endpoint, one exchange at a time.

Theory of operation. The transport feeds the parser, the parser's phase moves along, and the one
task that waits, if one does, is woken::

    phase    means                           bytes come           EOF, or the connection is lost
    ------   -----------------------------   ------------------   ------------------------------
    IDLE     no request: new, or pooled      failure              failure
    HEAD     request written, no final head  parse                failure
    BODY     head is here, body on its way   parse                DONE if EOF is what ends the
                                                                  body, else failure
    DONE     all is here, perhaps unread     hang up              hang up

A failure sets `Connection.error` and hangs up. What had arrived before it can still be read. To
hang up is to end the connection at once, unsent bytes or not, so that the endpoint hears of it
before any later request, and to tell the pool exactly once.

Flow control. Reading pauses while more than a bounded amount is unread. The request is handed to
the transport whole, since it is in memory anyway: the loop sends what the server takes while the
response may already be on its way. If a response ends before its request was sent, it counts, and
the connection ends with it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from forebay.adapters.upstream import reachable, shutting
from forebay.adapters.upstream.parser import BROKEN, DONE, ResponseParser
from forebay.adapters.upstream.sink import ACCEPTED
from forebay.adapters.upstream.waiter import Waiter
from forebay.errors import UpstreamError, UpstreamTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.adapters.upstream.settings import UpstreamSettings
    from forebay.adapters.upstream.sink import Sink

_UNREAD_HIGH = 256 * 1024
_UNREAD_LOW = 64 * 1024
# Up to here one copy is cheaper than one more buffer to write.
_SMALL_BODY = 64 * 1024


class Connection(asyncio.Protocol):
    """A connection; its owner (pool, client or response) is the only one to call it.

    Args:
        loop: the running loop.
        name: the endpoint, for errors.
        settings: bounds and times.
        on_hang_up: called once, when this connection can serve no more.

    Attributes:
        parser: the response.
        error: why this connection failed, if it did.
        completed_at: when the response's end came, on the loop's clock.
        lost: done when the transport is closed.
        waiter: the task that waits for more of the response.
    """

    __slots__ = (
        "_loop",
        "_name",
        "_on_hang_up",
        "_open",
        "_reading",
        "_reused",
        "_transport",
        "_unreachable_s",
        "completed_at",
        "error",
        "lost",
        "parser",
        "waiter",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        settings: UpstreamSettings,
        on_hang_up: Callable[[Connection], None],
    ) -> None:
        self.parser = ResponseParser(settings.max_head_bytes)
        self.error: UpstreamError | None = None
        self.lost: asyncio.Future[None] = loop.create_future()
        self.waiter = Waiter(loop, name, self._on_deadline)
        self._loop = loop
        self._name = name
        self._on_hang_up = on_hang_up
        self._unreachable_s = settings.unreachable_s
        self._transport: asyncio.Transport | None = None
        self._open = True
        self._reading = True
        self._reused = False
        self.completed_at = 0.0

    def __repr__(self) -> str:
        return f"<Connection {self._name} {self.parser.phase.value}, error {self.error!r}>"

    def start(self, head: bytes, body: bytes, *, head_only: bool) -> None:
        """Send a request; from here on `parser` and `error` tell what becomes of it.

        Args:
            head: request line and headers.
            body: content, perhaps empty.
            head_only: the response has no body whatever its head says (HEAD).
        """
        transport = self._transport
        if transport is None or not self._open or transport.is_closing():
            self._fail("connection closed before the request was sent")
            return
        self.parser.begin(head_only=head_only)
        if len(body) <= _SMALL_BODY:
            transport.write(head + body)
        else:
            transport.writelines((head, body))

    def take_error(self) -> UpstreamError:
        """Take the error, to raise it; kept here, it would be part of a reference cycle."""
        assert self.error is not None  # noqa: S101 - its owner has seen it
        error, self.error = self.error, None
        return error

    def take_piece(self) -> bytes:
        """Take the oldest unread piece of the body; there must be one."""
        parser = self.parser
        piece = parser.take()
        if not self._reading and parser.unread_cost <= _UNREAD_LOW:
            self._resume_reading()
        return piece

    def rest(self) -> bool:
        """End a complete exchange, and tell whether another one can follow."""
        parser = self.parser
        if parser.phase is not DONE or not self._open:
            return False
        parser.end()
        self._reused = True
        if not self._reading:
            self._resume_reading()
        return True

    def time_out(self, after_s: float) -> None:
        """Fail as one that did not go on in time."""
        what = "no more" if self.parser.status else "no head"
        self._fail(f"{what} of a response within {after_s:g} s", UpstreamTimeout)

    def close(self) -> None:
        """Give up whatever is under way, and hang up."""
        self._fail("given up on this side")

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, unless the connection was given up while it was being made."""
        self._transport = cast("asyncio.Transport", transport)
        if self._open:
            reachable.watch(transport.get_extra_info("socket"), self._unreachable_s)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse what came, wake who waits for it, and pause if nobody does."""
        if not self._open:
            return
        parser = self.parser
        phase_before = parser.phase
        parser.feed(data)
        if parser.phase is BROKEN:
            self._fail(parser.fault)
            return
        if parser.phase is DONE:
            self._after_response()
        waiter = self.waiter
        if waiter.future is not None:
            if waiter.sink is not None:
                self._push(waiter.sink)
            if parser.pieces or parser.phase is not phase_before:
                waiter.wake()
        elif self._reading and parser.unread_cost > _UNREAD_HIGH and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """The server will send no more; returning None lets the transport close."""
        self._on_peer_gone()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed, by whichever side."""
        if exc is None:
            self._on_peer_gone()
        elif reachable.is_gone(exc):
            self._fail(f"the host acknowledges nothing any more: {exc}", UpstreamTimeout)
        else:
            self._fail(f"connection lost: {exc}")
        if not self.lost.done():
            self.lost.set_result(None)

    # Steps.

    def _on_peer_gone(self) -> None:
        if self._open:
            self.parser.feed_eof()
            self.completed_at = self._loop.time()
            self._fail(self.parser.fault)

    def _after_response(self) -> None:
        """Hang up at once if no request can follow; what is unread stays readable."""
        self.completed_at = self._loop.time()
        transport = self._transport
        if not self.parser.keep_alive or transport is None or transport.get_write_buffer_size():
            self._hang_up()

    def _on_deadline(self) -> None:
        self.time_out(self.waiter.timeout_s)

    def _fail(self, what: str, kind: type[UpstreamError] = UpstreamError) -> None:
        """Hang up. That is a failure, unless the response is complete."""
        if not self._open:
            return
        parser = self.parser
        if parser.phase is not DONE:
            self.error = kind(
                f"{self._name}: {what}", reused=self._reused, response_started=parser.started
            )
        self._hang_up()
        self.waiter.wake()

    def _hang_up(self) -> None:
        if not self._open:
            return
        self._open = False
        self.waiter.close()
        self.parser.close()
        if self._transport is None:
            self.lost.set_result(None)
        else:
            # The transport closes in the loop's next turn; whoever gets the slot may be faster, and
            # would meet there a request that is over.
            shutting.shut(self._transport)
            self._transport.abort()
        self._on_hang_up(self)

    def _push(self, sink: Sink) -> None:
        parser, waiter = self.parser, self.waiter
        if waiter.future is None or waiter.future.done():  # cancelled
            return
        try:
            while parser.pieces:
                accepted = sink(self.take_piece())
                if accepted is not ACCEPTED:
                    waiter.wake(accepted)
                    return
        except Exception as error:  # noqa: BLE001 - it is the waiter's, not the transport's
            waiter.fail(error)

    def _resume_reading(self) -> None:
        self._reading = True
        if self._open and self._transport is not None:
            self._transport.resume_reading()
