"""Port 80 of a host that serves chat and embeddings: hands each request to the right server.

python front_door.py ADDRESS CHAT_PORT EMBEDDINGS_PORT
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


def door(address: str, chat_port: int, embeddings_port: int) -> web.Application:
    """Embeddings go by the name that was called, or by the path where one name serves both."""
    session: aiohttp.ClientSession

    async def opened(_app: web.Application) -> AsyncIterator[None]:
        nonlocal session
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            yield

    async def pass_on(request: web.Request) -> web.StreamResponse:
        embeds = "embed" in request.host or "embed" in request.path
        port = embeddings_port if embeds else chat_port
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        async with session.request(
            request.method,
            f"http://{address}:{port}{request.rel_url}",
            headers=headers,
            data=await request.read(),
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    async def models(request: web.Request) -> web.StreamResponse:
        if "embed" in request.host:
            return await pass_on(request)
        listed = []
        for port in (chat_port, embeddings_port):
            async with session.get(f"http://{address}:{port}/v1/models") as answer:
                listed += (await answer.json())["data"]
        return web.json_response({"object": "list", "data": listed})

    app = web.Application(client_max_size=2**26)
    app.cleanup_ctx.append(opened)
    app.router.add_get("/v1/models", models)
    app.router.add_route("*", "/{path:.*}", pass_on)
    return app


if __name__ == "__main__":
    address, *ports = sys.argv[1:]
    web.run_app(door(address, *map(int, ports)), host=address, port=80, handler_cancellation=True)
