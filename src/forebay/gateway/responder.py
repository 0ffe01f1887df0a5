"""Answers over ASGI."""

from __future__ import annotations

from email.utils import formatdate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence

    from forebay.gateway.message import Headers

    Message = MutableMapping[str, Any]
    Send = Callable[[Message], Awaitable[None]]


class AsgiResponder:
    """Answers over ASGI."""

    __slots__ = ("_date", "_send", "event_stream", "started")

    def __init__(self, send: Send, date: Date) -> None:
        self._send = send
        self._date = date
        self.started = False
        self.event_stream = False

    def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> Awaitable[None]:
        """Send status and headers."""
        self.started = True
        headers = self._date.added_to(headers)
        return self._send({"type": "http.response.start", "status": status, "headers": headers})

    def write(self, piece: bytes) -> Awaitable[None]:
        """Send a piece of the body; returns when the client has room for more."""
        return self._send({"type": "http.response.body", "body": piece, "more_body": True})

    def end(self, piece: bytes = b"") -> Awaitable[None]:
        """Send the last piece, and the end."""
        return self._send({"type": "http.response.body", "body": piece})

    def cut(self) -> None:
        """Nothing: an answer that is not ended makes the server close the connection."""


class Date:
    """The date header that every answer has (RFC 9110 section 6.6.1), made once a second."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._second = -1
        self._text = b""

    def added_to(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """The headers, with a date if there is none: an endpoint's own is kept."""
        dated = list(headers)
        if not any(name == b"date" for name, _ in dated):
            dated.append((b"date", self._now()))
        return dated

    def _now(self) -> bytes:
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._text = formatdate(usegmt=True).encode()
        return self._text
