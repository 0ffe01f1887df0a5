"""Takes an endpoint's answer in the client's place, until it has been looked at."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from forebay.adapters.upstream import ACCEPTED
from forebay.proxy.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from forebay.proxy.message import Headers, Responder

# 2,048 vectors of 4,096 dimensions as JSON are about 180 MB.
_MOST_BYTES = 256 * 1024 * 1024
_ANY_ZLIB_HEADER = zlib.MAX_WBITS | 32


class InvalidAnswer(Exception):  # noqa: N818 - what is wrong, to go into a message
    """An answer that does not give each input its vector."""


class Room:
    """What may still be held for one request, all of its answers together.

    Attributes:
        left: in bytes.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _MOST_BYTES

    def take(self, size: int) -> None:
        """Take some of it.

        Raises:
            Refused: there is not as much.
        """
        self.check(size)
        self.left -= size

    def check(self, size: int) -> None:
        """See that there is as much.

        Raises:
            Refused: there is not.
        """
        if size > self.left:
            message = f"the vectors are over {_MOST_BYTES} bytes; ask for fewer at once, or base64"
            raise Refused(502, message, code="answer_too_large")


class HeldAnswer:
    """A `forebay.proxy.message.Responder` that keeps what it is given.

    Args:
        room: of the request.

    Attributes:
        status: of the answer; 0 while there is none.
        headers: as they would go to the client.
        pieces: of the body.
    """

    __slots__ = ("_room", "event_stream", "headers", "pieces", "started", "status")

    def __init__(self, room: Room) -> None:
        self.started = False
        self.event_stream = False
        self.status = 0
        self.headers: Headers = []
        self.pieces: list[bytes] = []
        self._room = room

    def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Note status and headers."""
        self.started = True
        self.status, self.headers = status, list(headers)

    def write(self, piece: bytes) -> Awaitable[None]:
        """Keep a piece of the body.

        Raises:
            Refused: the answer is too large to be held.
        """
        self._room.take(len(piece))
        self.pieces.append(piece)
        return ACCEPTED

    def end(self, piece: bytes = b"") -> Awaitable[None]:
        """Keep the last piece."""
        return self.write(piece)

    def cut(self) -> None:
        """Nothing: what is held has not been sent."""

    def drop(self) -> None:
        """Keep status and headers only."""
        self._room.left += sum(map(len, self.pieces))
        self.pieces = []

    @property
    def ok(self) -> bool:
        """Whether the status is one of success."""
        return self.status // 100 == 2  # noqa: PLR2004

    def header(self, name: bytes) -> bytes | None:
        """The first header of that (lower-case) name."""
        return next((value for key, value in self.headers if key == name), None)

    def content(self) -> bytes:
        """The body, with its gzip or deflate undone.

        Raises:
            InvalidAnswer: another encoding, or a broken one. None was asked for.
            Refused: it is too large to be unpacked.
        """
        body = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        encoding = self.header(b"content-encoding")
        if encoding is None or encoding.lower() == b"identity":
            return body
        if encoding.lower() not in {b"gzip", b"x-gzip", b"deflate"}:
            raise InvalidAnswer(f"its content-encoding is {encoding.decode('latin-1')!r}")
        unpacker = zlib.decompressobj(wbits=_ANY_ZLIB_HEADER)
        try:
            content = unpacker.decompress(body, self._room.left + 1)
        except zlib.error as error:
            raise InvalidAnswer(
                f"its body is not what its content-encoding says: {error}"
            ) from None
        self._room.check(len(content))
        if not unpacker.eof:
            raise InvalidAnswer("its compressed body is cut short")
        return content

    async def pass_on(self, responder: Responder) -> None:
        """Send it to the client as it is."""
        responder.start(self.status, self.headers)
        *before, last = self.pieces or [b""]
        for piece in before:
            await responder.write(piece)
        await responder.end(last)
