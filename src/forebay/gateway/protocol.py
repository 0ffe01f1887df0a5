"""HTTP/1.1 towards clients: uvicorn's protocol, and what a gateway needs beyond it.

uvicorn parses, frames and runs the application. It leaves open, and this adds:

- A client that leaves is noticed although it has pipelined another request (uvicorn stops reading
  then, and tells only the latest request), and although it has only shut its sending side.
- A head must come in time and be of a size, and an answer's end must be taken; otherwise the
  connection is closed.
- An offer to speak another protocol is passed over, and the body behind it is read.
- A client that leaves is noticed although its body was so large that reading was paused.
- What is not HTTP is refused in the form of OpenAI's errors, and never inside another answer.
- The application finds the client's presence in its scope, and with it the connection.
"""

from __future__ import annotations

from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from forebay.gateway.presence import Presence
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
_MOST_HEAD_BYTES = 64 * 1024
_OFFERS = frozenset({b"http2-settings", b"upgrade"})


class Protocol(HttpToolsProtocol):
    """One client's connection."""

    _serving: RequestResponseCycle | None = None
    _presence: Presence | None = None
    _timer: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0  # beyond the read in which the head began
    _read_bytes = 0

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
        """Parse; a head that has begun must be complete in time, and of a size."""
        self._unset_keepalive_if_required()
        self._read_bytes = len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            self._refuse(Refused(400, f"not HTTP/1.1: {error}", code="invalid_http"))
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                message = f"the request's headers are over {_MOST_HEAD_BYTES} bytes"
                self._refuse(Refused(431, message, code="headers_too_large"))
                return
        elif self._is_serving():
            return
        # Also for what is no head: an empty line, or the body of a request that is answered.
        if self._timer is None:
            self._expect_head()

    def on_message_begin(self) -> None:
        """Expect the rest of its head in time."""
        self._in_head = True
        self._head_bytes = -self._read_bytes
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Go on reading behind a pipelined request, to see the client leave."""
        self._in_head = False
        self._stop_timer()
        if self.parser.should_upgrade():
            return
        super().on_headers_complete()
        if 0 < len(self.pipeline) < _MOST_PIPELINED:
            self.flow.resume_reading()

    def on_message_complete(self) -> None:
        """Go on reading, to see the client leave; a large body has paused it.

        The end that is assumed behind an offer to upgrade is none, and is passed over.
        """
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        if self.cycle is self._serving:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """See to it that a connection that closes does close."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._flush()
        elif self._in_head:  # the next request's; while this one was served it could not be late
            self._stop_timer()
            self._expect_head()

    def shutdown(self) -> None:
        """The server stops: close now, or behind the answer."""
        super().shutdown()
        if self.transport.is_closing():
            self._flush()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; its last answer may still be on its way."""
        self._flush()

    def pause_writing(self) -> None:
        """Wait for the client, but not for ever."""
        super().pause_writing()
        if self._presence is not None:
            self._presence.fall_behind()

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        if self._presence is not None:
            self._presence.catch_up()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """As uvicorn does, but the client's presence knows the task."""
        self._serving = cycle
        presence = self._presence = Presence(self.loop, cycle)
        cycle.scope["presence"] = presence  # type: ignore[typeddict-unknown-key]
        task = presence.task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _refuse(self, refused: Refused) -> None:
        """Refuse what is no request, and close the connection."""
        if self.transport.is_closing():
            return
        # Behind a request that is still served, it would be read as part of that one's answer.
        if not self._is_serving() or self._is_own_body():
            lines = [b"%b: %b\r\n" % pair for pair in refused.headers([(b"connection", b"close")])]
            status = b"HTTP/1.1 %d %b\r\n" % (
                refused.status,
                HTTPStatus(refused.status).phrase.encode(),
            )
            self.transport.write(status + b"".join(lines) + b"\r\n" + refused.body)
        self._tell_gone()
        self.transport.close()
        self._flush()

    def _parse(self, data: bytes | memoryview) -> None:
        """Parse as if the client had not offered another protocol (RFC 9110 section 7.8).

        The parser takes what follows such an offer for the other protocol. But it is the body of
        the request: Java's client, for one, offers HTTP/2 with whatever it sends first.
        """
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                if self.parser.get_method() == b"CONNECT":
                    self._refuse(Refused(405, "CONNECT is not possible here", code="not_allowed"))
                    return
                data = memoryview(data)[offer.args[0] :]
                head = self._head_without_offer()
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
                self.parser.feed_data(head)
            else:
                return

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                options = [option.strip() for option in value.split(b",")]
                kept = b", ".join(o for o in options if o.lower() not in _OFFERS)
                lines.append(b"connection: " + kept)
            elif name not in _OFFERS:
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join(lines) + b"\r\n\r\n"

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
            if self._presence is not None:
                self._presence.leave()

    def _expect_head(self) -> None:
        self._timer = self.loop.call_later(_PATIENCE_S, self._head_is_late)

    def _head_is_late(self) -> None:
        if self.flow.read_paused or self._is_serving():
            self._expect_head()  # it may be this side that has not read it yet
        else:
            self._flush()

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
