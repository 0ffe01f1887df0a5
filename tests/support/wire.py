"""A client on a bare socket: it sees every byte and every chunk, and leaves when told to."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

JSON = ("content-type", "application/json")


@dataclass(frozen=True)
class Head:
    """Status and headers of a response; names in lower case, in order."""

    status: int
    headers: list[tuple[str, str]]

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def __getitem__(self, name: str) -> str:
        (value,) = self.all(name)
        return value

    def get(self, name: str) -> str | None:
        return next(iter(self.all(name)), None)


@dataclass(frozen=True)
class Answer:
    """A whole response."""

    head: Head
    pieces: list[bytes]

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error, which must have OpenAI's shape."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error["message"], str)
        assert error["message"]
        return error

    @property
    def events(self) -> list[bytes]:
        return [line for line in self.body.split(b"\n") if line.startswith(b"data:")]


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._head: Head | None = None

    async def send(
        self,
        method: str,
        target: str,
        body: bytes | dict[str, Any] | None = b"",
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Send a request; with `body` None there is no content-length, and the caller goes on."""
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        lines = [f"{method} {target} HTTP/1.1", "Host: gateway.test"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        await self.write(head + (body or b""))

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> Head:
        raw = await self.reader.readuntil(b"\r\n\r\n")
        first, *rest = raw[:-4].decode("latin-1").split("\r\n")
        headers = []
        for line in rest:
            name, _, value = line.partition(":")
            headers.append((name.lower(), value.strip()))
        self._head = Head(int(first.split(" ")[1]), headers)
        return self._head

    async def piece(self) -> bytes:
        """The next chunk of a chunked response; empty at the end."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        piece = await self.reader.readexactly(size + 2)
        return piece[:-2]

    async def rest(self) -> list[bytes]:
        """What is left of the body, in chunks if it has them."""
        assert self._head is not None
        if self._head.get("transfer-encoding") == "chunked":
            pieces = []
            while piece := await self.piece():
                pieces.append(piece)
            return pieces
        return [await self.reader.readexactly(int(self._head.get("content-length") or 0))]

    async def answer(self) -> Answer:
        return Answer(await self.head(), await self.rest())

    async def ask(self, *args: Any, **more: Any) -> Answer:
        await self.send(*args, **more)
        return await self.answer()

    async def closed(self) -> bytes:
        """Everything until the server closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    def leave(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Leave as a killed process or a lost network does."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def half_close(self) -> None:
        self.writer.write_eof()


@asynccontextmanager
async def connected(port: int, *, receive_buffer: int | None = None) -> AsyncIterator[Wire]:
    """A connection that is closed at the end."""
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    limit = 2**16 if receive_buffer is None else receive_buffer
    reader, writer = await asyncio.open_connection(sock=sock, limit=limit)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()
