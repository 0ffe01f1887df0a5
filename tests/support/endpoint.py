"""A scripted endpoint that answers each request with the same bytes."""

from __future__ import annotations

from typing import Any


class Endpoint:
    """Keeps the requests that it got.

    Args:
        serve: the fixture that starts scripted servers.
        pieces: what each request is answered with.
    """

    def __init__(self, serve: Any, *pieces: bytes) -> None:
        self.pieces = pieces
        self.requests: list[bytes] = []
        self.server = serve(self._script)
        self.url = self.server.url

    async def _script(self, peer: Any) -> None:
        while request := await peer.answer(*self.pieces):
            self.requests.append(request)

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Of the last request; names in lower case."""
        head = self.requests[-1].partition(b"\r\n\r\n")[0].decode("latin-1")
        pairs = [line.partition(":") for line in head.split("\r\n")[1:]]
        return [(name.lower(), value.strip()) for name, _, value in pairs]

    @property
    def body(self) -> bytes:
        """Of the last request."""
        return self.requests[-1].partition(b"\r\n\r\n")[2]
