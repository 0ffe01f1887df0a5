"""A request and the way to answer it, as the proxy sees them: no ASGI here, nor any other front."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Sequence

Headers = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class Request:
    """One request, whole.

    Args:
        method: e.g. ``POST``.
        path: without the query, e.g. ``b"/v1/chat/completions"``.
        query: what follows the question mark, perhaps empty.
        headers: in order; names in lower case.
        body: as sent.
        fields: the headers by name, the first of each.
    """

    method: str
    path: bytes
    query: bytes
    headers: Headers
    body: bytes
    fields: dict[bytes, bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.fields = dict(reversed(self.headers))


class _Done:
    """Awaiting it takes no time."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield  # makes this a generator


DONE = _Done()


class Responder(Protocol):
    """Answers one request. A write is done when the client has room for more; `DONE` says at once.

    Attributes:
        started: whether a status has been sent, so that another one is not possible any more.
        event_stream: whether what was started is a stream of server-sent events.
    """

    started: bool
    event_stream: bool

    def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> Awaitable[None]:
        """Send status and headers."""

    def write(self, piece: bytes) -> Awaitable[None]:
        """Send a piece of the body."""

    def end(self, piece: bytes = b"") -> Awaitable[None]:
        """Send the last piece, and the end."""

    def cut(self) -> None:
        """Let the client see that the body is not whole."""
