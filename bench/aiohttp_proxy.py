"""The proxy that one would write first: raw ASGI on uvicorn, aiohttp towards the backend.

It holds the whole request, relays the response chunk by chunk, and does nothing else. It is what
Forebay's own upstream client is measured against.

    python -m bench.aiohttp_proxy --port 8080 --backend http://127.0.0.1:9000
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import aiohttp
import uvicorn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

_HOP_BY_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"host", b"content-length"}


class Proxy:
    """An ASGI application that sends every request to one backend."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._session: aiohttp.ClientSession

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._relay(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
        )
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._session.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _relay(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name not in _HOP_BY_HOP
        ]
        url = self._backend + scope["path"]
        async with self._session.request(
            scope["method"], url, headers=headers, data=body
        ) as response:
            kept = [
                (name.lower(), value)
                for name, value in response.raw_headers
                if name.lower() not in _HOP_BY_HOP
            ]
            await send({"type": "http.response.start", "status": response.status, "headers": kept})
            async for chunk in response.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="A small uvicorn + aiohttp proxy.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--backend", required=True)
    arguments = parser.parse_args()
    uvicorn.run(
        Proxy(arguments.backend),
        host="127.0.0.1",
        port=arguments.port,
        log_level="error",
        access_log=False,
        date_header=False,
    )


if __name__ == "__main__":
    main()
