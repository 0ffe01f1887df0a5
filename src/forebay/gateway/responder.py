"""Answers on a client's connection: head, framing (RFC 9112 sections 6 and 7), and how it ends."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING

from forebay.adapters.upstream import ACCEPTED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from forebay.gateway.connection import ClientConnection

# Up to here one copy is cheaper than one more buffer to write.
_SMALL_BYTES = 64 * 1024
_NO_CONTENT, _NOT_MODIFIED = 204, 304
_NO_BODY = frozenset({_NO_CONTENT, _NOT_MODIFIED})
_END = (b"", b"")  # of a head, in lines


class Responder:
    """Answers one request; see `forebay.proxy.message.Responder`.

    Args:
        client: the connection.
        date: makes the date header.
        head_only: no body goes with this answer (it answers HEAD).
        chunks: the client understands chunked framing (HTTP/1.1).
        keep_alive: another request may follow on this connection.

    Attributes:
        complete: the client has been sent all of it, as far as it is there.
    """

    __slots__ = (
        "_chunked",
        "_chunks",
        "_client",
        "_date",
        "_head",
        "_head_only",
        "_left",
        "_no_body",
        "_outgoing",
        "complete",
        "event_stream",
        "keep_alive",
        "started",
    )

    def __init__(
        self,
        client: ClientConnection,
        date: Date,
        *,
        head_only: bool = False,
        chunks: bool = True,
        keep_alive: bool = False,
    ) -> None:
        self._client = client
        self._outgoing = client.outgoing
        self._date = date
        self._chunks = chunks
        self.keep_alive = keep_alive
        self._head_only = head_only
        self._no_body = head_only
        self._head = b""
        self._chunked = False
        self._left: int | None = None  # of a body whose length was told
        self.started = False
        self.event_stream = False
        self.complete = False

    def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Make ready status and headers; they leave with the first of the body.

        Raises:
            ValueError: a header that would not stay within its line.
        """
        if status == _NO_CONTENT:  # RFC 9110 section 8.6
            headers = [header for header in headers if header[0] != b"content-length"]
        # A start that failed may have come before.
        self._no_body = self._head_only or status in _NO_BODY
        self._chunked = False
        fields = dict(headers)
        length = fields.get(b"content-length")
        self._left = None if length is None else int(length)
        lines = [_STATUS_LINES.get(status) or _status_line(status)]
        lines += [b": ".join(pair) for pair in headers]
        if b"date" not in fields:  # RFC 9110 section 6.6.1
            lines.append(self._date.line())
        self._frame(fields, lines)
        lines += _END
        head = b"\r\n".join(lines)
        # One look at the whole is cheaper than one at every line.
        breaks = len(lines) - 1
        if head.count(b"\n") != breaks or head.count(b"\r") != breaks or b"\0" in head:
            raise ValueError("line break or NUL in a header of the answer")
        self._head = head
        self.started = True

    def write(self, piece: bytes) -> Awaitable[None]:
        """Send a piece of the body; over when the client has room for more."""
        if self._client.gone:
            return ACCEPTED
        if self._chunked:
            if piece:
                piece = b"%b%x\r\n%b\r\n" % (self._head, len(piece), piece)
                self._head = b""
                self._outgoing.write(piece)
        else:
            self._send(piece)
        return self._outgoing.backlog or ACCEPTED

    def end(self, piece: bytes = b"") -> Awaitable[None]:
        """Send the last piece, and the end; what an answer before this one left goes first."""
        if self._outgoing.backlog is not None:
            return self._end_later(self._outgoing.backlog, piece)
        self._end(piece)
        return ACCEPTED

    def cut(self) -> None:
        """Reset the connection if its end would look like the body's.

        Otherwise nothing: behind an answer that is not complete the connection is closed.
        """
        if self._left is None and not (self._chunked or self._no_body):
            self._outgoing.reset()

    def _frame(self, fields: dict[bytes, bytes], lines: list[bytes]) -> None:
        """Decide how the body ends, and the connection, and say so."""
        if self._left is None and not self._no_body:
            if self._chunks:
                self._chunked = True
                lines.append(b"transfer-encoding: chunked")
            else:  # then the end of the connection is the end of the body
                self.keep_alive = False
        closes = b"close" in fields.get(b"connection", b"").lower()
        self.keep_alive = self.keep_alive and not (closes or self._client.stopping)
        if not (self.keep_alive or closes):
            lines.append(b"connection: close")

    async def _end_later(self, backlog: Awaitable[None], piece: bytes) -> None:
        await backlog
        self._end(piece)

    def _end(self, piece: bytes) -> None:
        if self._client.gone:
            return
        if self._chunked:
            head, self._head = self._head, b""
            chunk = b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
            self._outgoing.write(b"%b%b0\r\n\r\n" % (head, chunk))
        else:
            self._send(piece)
        if self._no_body or not self._left:
            self.complete = True
            if not self.keep_alive or self._client.stopping:
                self._outgoing.finish()
        # Else it is less than was told: not complete, so the connection is closed.

    def _send(self, piece: bytes) -> None:
        """Send the head, if it has not been, and a piece of a body that is not chunked."""
        head = self._head
        if self._no_body:
            piece = b""
        elif self._left is not None:
            if len(piece) > self._left:  # the client would take it for the next answer
                piece = piece[: self._left]
                self.keep_alive = False
            self._left -= len(piece)
        if head:
            self._head = b""
            if len(piece) > _SMALL_BYTES:
                self._outgoing.writelines((head, piece))
                return
            piece = head + piece
        if piece:
            self._outgoing.write(piece)


class Date:
    """The date header, made once a second.

    Args:
        clock: any that counts seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._second = -1
        self._line = b""

    def line(self) -> bytes:
        """The header line, without its end."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._line = b"date: " + formatdate(usegmt=True).encode()
        return self._line


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b" % (status, phrase.encode())


_STATUS_LINES = {status: _status_line(status) for status in range(100, 600)}
