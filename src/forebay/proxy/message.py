"""A request and the way to answer it, as the proxy sees them: no connection here, nor any front."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

Headers = list[tuple[bytes, bytes]]


@dataclass(slots=True, eq=False)
class Request:
    """One request.

    Args:
        method: e.g. ``b"POST"``.
        path: without the query, e.g. ``b"/v1/chat/completions"``.
        query: what follows the question mark, perhaps empty.
        headers: in order; names in lower case.
        body: all of it, as sent.
        fields: the headers by name, the first of each.
    """

    method: bytes
    path: bytes
    query: bytes
    headers: Headers
    body: bytes
    fields: dict[bytes, bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.fields = dict(reversed(self.headers))


class Responder(Protocol):
    """Answers one request.

    What a write returns is over when the client has room for more; `upstream.ACCEPTED` says at
    once. The piece has been taken in either case.

    Attributes:
        started: whether a status has been sent, so that another one is not possible any more.
        event_stream: whether what was started is a stream of server-sent events.
    """

    started: bool
    event_stream: bool

    def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Send status and headers."""

    def write(self, piece: bytes) -> Awaitable[None]:
        """Send a piece of the body."""

    def end(self, piece: bytes = b"") -> Awaitable[None]:
        """Send the last piece, and the end."""

    def cut(self) -> None:
        """Let the client see that the body is not whole."""
