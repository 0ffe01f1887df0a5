"""HTTP/1.1 towards clients: uvicorn's protocol, and what a gateway needs beyond it.

uvicorn parses, frames and runs the application. It leaves open, and this adds:

- A client that leaves is noticed although it has pipelined another request (uvicorn stops reading
  then, and tells only the latest request), and although it has only shut its sending side.
- A head must come in time, and so must the end of an answer that its client reads ever more slowly;
  otherwise the connection is closed.
- What is not HTTP is refused in the form of OpenAI's errors, and never inside another answer.
- The application finds the connection in its scope, to abort it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from forebay.gateway.refusal import Refused

if TYPE_CHECKING:
    import asyncio

    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

# For a head to be complete, and for any of an answer to be taken.
_PATIENCE_S = 60.0
# Requests that wait behind the one that is served; beyond that, and beyond 64 KiB of a body,
# nothing more is read, and that the client leaves is seen by writing to it alone.
_MOST_PIPELINED = 16


class Protocol(HttpToolsProtocol):
    """One client's connection."""

    _serving: RequestResponseCycle | None = None
    _timer: asyncio.TimerHandle | None = None
    _in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is served, whichever came last."""
        self._stop_timer()
        self._tell_gone()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """A client that sends no more has left, unless all of its answer is on its way."""
        if self._is_serving():
            self._tell_gone()
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse; a head that has begun must be complete in time."""
        super().data_received(data)
        if self._in_head and self._timer is None:
            self._expect_head()

    def on_message_begin(self) -> None:
        """Let the application abort: a client that does not read never lets a connection close."""
        self._in_head = True
        super().on_message_begin()
        self.scope["transport"] = self.transport  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        """Go on reading behind a pipelined request, to see the client leave."""
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()
        if 0 < len(self.pipeline) < _MOST_PIPELINED:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """See to it that a connection that closes does close."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._flush()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; its last answer may still be on its way."""
        self._flush()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, and close the connection."""
        if self._is_serving() and not self._is_own_body():
            self.transport.close()  # anything sent now would be read as part of another answer
            return
        refused = Refused(400, msg, code="invalid_http")
        headers = refused.headers([(b"connection", b"close")])
        lines = [b"%b: %b\r\n" % pair for pair in headers]
        head = b"HTTP/1.1 400 Bad Request\r\n" + b"".join(lines) + b"\r\n"
        self.transport.write(head + refused.body)
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._serving = cycle
        super()._start_asgi_task(cycle, app)

    def _is_serving(self) -> bool:
        return self._serving is not None and not self._serving.response_complete

    def _is_own_body(self) -> bool:
        """Whether what is being read belongs to the request that is served, still unanswered."""
        cycle = self._serving
        return cycle is self.cycle and cycle.more_body and not cycle.response_started

    def _tell_gone(self) -> None:
        if self._serving is not None and self._is_serving():
            self._serving.disconnected = True
            self._serving.message_event.set()
            self.flow.resume_writing()

    def _expect_head(self) -> None:
        self._timer = self.loop.call_later(_PATIENCE_S, self.transport.abort)

    def _flush(self, before: float = inf) -> None:
        """Close for good once everything is sent, or nothing more of it is taken."""
        self._stop_timer()
        left = self.transport.get_write_buffer_size()
        if 0 < left < before:
            self._timer = self.loop.call_later(_PATIENCE_S, self._flush, left)
        else:
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
