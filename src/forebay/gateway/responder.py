"""Answers on a client's connection.

uvicorn's own way of sending costs about as much as all else that the gateway does for a small
answer. So the data plane writes for itself, in uvicorn's place: framing (RFC 9112 sections 6 and
7), head and first of the body in one write, and the state of uvicorn's cycle, which goes on to
decide what becomes of the connection.
"""

from __future__ import annotations

import socket
import struct
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING

from forebay.gateway.message import DONE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

# Up to here one copy is cheaper than one more buffer to write.
_SMALL_BYTES = 64 * 1024
_NO_CONTENT, _NOT_MODIFIED = 204, 304
_NO_BODY = frozenset({_NO_CONTENT, _NOT_MODIFIED})
# Closing then resets the connection.
_NO_LINGER = struct.pack("ii", 1, 0)


class Responder:
    """Answers one request; see `forebay.gateway.message.Responder`.

    Args:
        cycle: uvicorn's account of the request.
        date: makes the date header.
    """

    __slots__ = (
        "_bodiless",
        "_chunked",
        "_cycle",
        "_date",
        "_flow",
        "_head",
        "_left",
        "_transport",
        "event_stream",
        "started",
    )

    def __init__(self, cycle: RequestResponseCycle, date: Date) -> None:
        self._cycle = cycle
        self._flow = cycle.flow
        self._transport = cycle.transport
        self._date = date
        self._head = b""
        self._chunked = False
        self._bodiless = False
        self._left: int | None = None  # of a body whose length was told
        self.started = False
        self.event_stream = False

    def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> Awaitable[None]:
        """Make ready status and headers; they leave with the first of the body.

        Raises:
            ValueError: a header that would not stay within its line.
        """
        if status == _NO_CONTENT:  # RFC 9110 section 8.6
            headers = [header for header in headers if header[0] != b"content-length"]
        self._left = None
        parts = [_status_line(status)]
        is_dated = closes = False
        for name, value in headers:
            if name == b"content-length":
                self._left = int(value)
            elif name == b"connection":
                closes = closes or b"close" in value.lower()
            elif name == b"date":
                is_dated = True
            parts += (name, b": ", value, b"\r\n")
        if not is_dated:  # RFC 9110 section 6.6.1
            parts.append(self._date.line())
        framing = self._framing(status, closes=closes)
        parts.append(framing)
        head = b"".join(parts)
        # One look at the whole is cheaper than one at every part.
        lines = 1 + len(headers) + (not is_dated) + framing.count(b"\n")
        if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
            raise ValueError("line break or NUL in a header of the answer")
        self._head = head
        self.started = self._cycle.response_started = True
        self._cycle.waiting_for_100_continue = False
        return DONE

    def write(self, piece: bytes) -> Awaitable[None]:
        """Send a piece of the body; done when the client has room for more."""
        if self._flow.write_paused:
            return self._when_there_is_room(piece, last=False)
        self._send(piece, last=False)
        return DONE

    def end(self, piece: bytes = b"") -> Awaitable[None]:
        """Send the last piece, and the end."""
        if self._flow.write_paused:
            return self._when_there_is_room(piece, last=True)
        self._send(piece, last=True)
        return DONE

    def cut(self) -> None:
        """Reset the connection if its end would look like the body's.

        Otherwise nothing: an answer that is not ended makes uvicorn close the connection.
        """
        if self._transport.is_closing():
            return
        if self._left is None and not (self._chunked or self._bodiless):
            accepted = self._transport.get_extra_info("socket")
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()

    async def _when_there_is_room(self, piece: bytes, *, last: bool) -> None:
        await self._flow.drain()
        self._send(piece, last=last)

    def _framing(self, status: int, *, closes: bool) -> bytes:
        """The last lines of a head: how the body ends, and the connection."""
        cycle = self._cycle
        self._bodiless = cycle.scope["method"] == "HEAD" or status in _NO_BODY
        self._chunked = False
        if not self._bodiless and self._left is None:
            self._chunked = cycle.scope["http_version"] == "1.1"
            if not self._chunked:  # then the end of the connection is the end of the body
                cycle.keep_alive = False
        if closes:
            cycle.keep_alive = False
        close = b"" if cycle.keep_alive or closes else b"connection: close\r\n"
        chunked = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        return close + chunked + b"\r\n"

    def _send(self, piece: bytes, *, last: bool) -> None:
        if self._cycle.disconnected:
            return
        head, self._head = self._head, b""
        if self._bodiless:
            data = head
        elif self._chunked:
            end = b"0\r\n\r\n" if last else b""
            data = b"%b%x\r\n%b\r\n%b" % (head, len(piece), piece, end) if piece else head + end
        else:
            if self._left is not None:
                if len(piece) > self._left:  # the client would take it for the next answer
                    piece = piece[: self._left]
                    self._cycle.keep_alive = False
                self._left -= len(piece)
            if head and len(piece) > _SMALL_BYTES:
                self._transport.write(head)
                head = b""
            data = head + piece if head else piece
        if data:
            self._transport.write(data)
        if last:
            self._end()

    def _end(self) -> None:
        cycle = self._cycle
        if self._left and not self._bodiless:
            return  # less than was told: not ended, so uvicorn closes the connection
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self._transport.close()
        cycle.on_response()


class Date:
    """The date header, made once a second."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._second = -1
        self._made = b"", b""

    def line(self) -> bytes:
        """The whole header line."""
        return self._line_and_value()[0]

    def value(self) -> bytes:
        """The header's value."""
        return self._line_and_value()[1]

    def _line_and_value(self) -> tuple[bytes, bytes]:
        second = int(self._clock())
        if second != self._second:
            self._second = second
            value = formatdate(usegmt=True).encode()
            self._made = b"date: %b\r\n" % value, value
        return self._made


def _made(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode())


_STATUS_LINES = {status: _made(status) for status in range(100, 600)}


def _status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or _made(status)
