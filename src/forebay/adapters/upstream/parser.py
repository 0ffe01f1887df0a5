"""From bytes to a response, without IO: llhttp, and what it lets pass that a proxy must not."""

from __future__ import annotations

from collections import deque
from enum import Enum
from http import HTTPStatus

import httptools

# What a piece costs beside its bytes, so that a flood of tiny chunks is bounded as well.
_PIECE_COST = 64


class Phase(Enum):
    """How far a response is."""

    IDLE = "idle"  # no request, no response
    HEAD = "head"  # the final head is not complete
    BODY = "body"  # the head is, the body is not
    DONE = "done"  # all of it is here
    BROKEN = "broken"  # it cannot be made sense of; `ResponseParser.fault` says why


# Looking a member up in its class takes Python 3.11 five times as long as comparing it.
IDLE, HEAD, BODY, DONE, BROKEN = Phase


class ResponseParser:
    """Parses responses, one for each `begin`.

    Interim responses (1xx) and trailers are dropped; the pieces of the body are kept as they came.

    Args:
        max_head_bytes: see `UpstreamSettings`.

    Attributes:
        phase: how far the response is.
        started: any byte of it has come.
        status: of the final head, once that is complete; as are `reason` and `headers`.
        keep_alive: another response may follow (RFC 9112 section 9.3).
        pieces: the unread part of the body, for reading; `take` takes from it.
        unread_cost: memory that `pieces` takes, in bytes.
        fault: what is wrong, when the phase is BROKEN.
    """

    __slots__ = (
        "_ends_at_eof",
        "_head_only",
        "_left",
        "_llhttp",
        "_max_head_bytes",
        "_overhead_bytes",
        "fault",
        "headers",
        "keep_alive",
        "phase",
        "pieces",
        "reason",
        "started",
        "status",
        "unread_cost",
    )

    def __init__(self, max_head_bytes: int) -> None:
        self._max_head_bytes = max_head_bytes
        self._llhttp: httptools.HttpResponseParser | None = None
        self.pieces: deque[bytes] = deque()
        self.fault = ""
        self.end()

    def end(self) -> None:
        """Be done with a response; expect none."""
        self.phase: Phase = IDLE
        self.started = False
        self.status = 0
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.keep_alive = False
        self.pieces.clear()
        self.unread_cost = 0
        self._head_only = False
        self._ends_at_eof: bool = False
        self._left: int | None = None  # of a body whose length was told
        self._overhead_bytes: int = 0  # in a row, without content

    def begin(self, *, head_only: bool) -> None:
        """Expect a response.

        Args:
            head_only: it has no body whatever its head says (it answers HEAD).
        """
        if self._llhttp is None:
            self._llhttp = httptools.HttpResponseParser(self)
        self.phase = HEAD  # all else is as `end` has left it
        self._head_only = head_only

    def feed(self, data: bytes) -> None:
        """Parse what came; `phase` and `pieces` tell what that was."""
        if self.phase is BODY and self._left is not None:
            self._count(data, self._left)
            return
        if self._llhttp is None or (self.phase is not BODY and self.phase is not HEAD):
            self._break("bytes that no request had asked for")
            return
        self.started = True
        self._overhead_bytes += len(data)
        try:
            self._llhttp.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"not HTTP/1.1: {error}")
        if self._overhead_bytes > self._max_head_bytes:
            self._break(f"more than {self._max_head_bytes} bytes of head or framing in a row")

    def _count(self, data: bytes, left: int) -> None:
        """Take more of a body whose length was told: that needs no parsing, hence no copy."""
        self._llhttp = None  # it would wait for what it is not given
        self.on_body(data if len(data) <= left else data[:left])
        if len(data) >= left:
            self.on_message_complete()
        if len(data) > left:
            self._break("bytes that no request had asked for")

    def feed_eof(self) -> None:
        """No more will come: the end of a body that has no other, else a cut."""
        if self.phase is BODY and self._ends_at_eof:
            self.phase = DONE
        else:
            where = "in the middle of" if self.phase is BODY else "before"
            self._break(f"connection closed {where} a response")

    def take(self) -> bytes:
        """Take the oldest unread piece."""
        piece = self.pieces.popleft()
        self.unread_cost -= len(piece) + _PIECE_COST
        return piece

    def close(self) -> None:
        """Parse no more; what was parsed stays."""
        self._llhttp = None  # each refers to the other

    # What llhttp calls. One read may hold more than one message, so each looks at the phase.

    def on_message_begin(self) -> None:
        """Notice a response after the response."""
        if self.phase is DONE:
            self.keep_alive = False

    def on_status(self, reason: bytes) -> None:
        """Collect the reason phrase, which may come in parts."""
        if self.phase is HEAD:
            self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect headers; those after the body are trailers."""
        if self.phase is HEAD:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Skip an interim head, examine a final one."""
        llhttp = self._llhttp
        if llhttp is None or self.phase is not HEAD:
            return
        status = llhttp.get_status_code()
        if status < HTTPStatus.OK:
            self.reason = b""
            self.headers = []
            if status == HTTPStatus.SWITCHING_PROTOCOLS:
                self._break("switched protocols unasked")
            return
        self.keep_alive = llhttp.should_keep_alive()
        self._examine_head(llhttp.get_http_version())
        if self.phase is HEAD:
            self.status = status
            self.phase = BODY
            if self._head_only:
                self.phase = DONE
                self._llhttp = None  # it would wait for the body that the head announces

    def on_body(self, body: bytes) -> None:
        """Keep a piece."""
        if self.phase is BODY:
            self.pieces.append(body)
            self.unread_cost += len(body) + _PIECE_COST
            self._overhead_bytes = 0
            if self._left is not None:
                self._left -= len(body)
        else:
            self._break("a body where none can be")

    def on_message_complete(self) -> None:
        """End the response by its own framing."""
        if self.phase is BODY:
            self.phase = DONE
            self._overhead_bytes = 0

    def _examine_head(self, version: str) -> None:
        """Learn how the body is framed (RFC 9112 section 6.3), and refuse what llhttp does not."""
        if version not in {"1.1", "1.0"}:
            self._break(f"HTTP/{version}, not HTTP/1.1")
        codings: list[bytes] = []
        self._ends_at_eof = True
        for field in self.headers:
            name = field[0].lower()
            if name == b"content-length":
                self._ends_at_eof = False
                self._left = int(field[1])
            elif name == b"transfer-encoding":
                codings.append(field[1].strip().lower())
        if codings:
            self._ends_at_eof = False
            self._left = None
            if codings != [b"chunked"]:
                self._break(f"transfer-encoding {b', '.join(codings)!r} that was not asked for")
            if version == "1.0":
                self.keep_alive = False  # RFC 9112 section 6.1: the framing may be a mistake
        # Of what has come, some may be body already: only then is it worth to count again.
        if self._overhead_bytes > self._max_head_bytes:
            head_bytes = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if head_bytes > self._max_head_bytes:
                self._break(f"a response head of more than {self._max_head_bytes} bytes")

    def _break(self, fault: str) -> None:
        """Note a fault; after a complete response, that only means that none may follow."""
        if self.phase is DONE:
            self.keep_alive = False
        elif self.phase is not BROKEN:
            self.phase = BROKEN
            self.fault = fault
