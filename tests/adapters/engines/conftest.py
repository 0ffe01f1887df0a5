"""A real HTTP server on loopback whose pages a test sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from forebay.adapters.engines.http import scrape_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp


@dataclass
class Server:
    """Answers what `pages` says, by path with query, else by path, else 404."""

    root: str = ""
    pages: dict[str, bytes | str | dict[str, object]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(request.path_qs)
        self.headers.append(dict(request.headers))
        key = request.path_qs if request.path_qs in self.pages else request.path
        if key not in self.pages:
            return web.Response(status=404, text="404 page not found")
        page = self.pages[key]
        status = self.statuses.get(key, 200)
        if isinstance(page, dict):
            return web.json_response(page, status=status)
        body = page.encode() if isinstance(page, str) else page
        return web.Response(body=body, status=status, content_type="text/plain")


@pytest.fixture
async def server(anyio_backend: str) -> AsyncIterator[Server]:
    del anyio_backend
    made = Server()
    app = web.Application()
    app.router.add_get("/{path:.*}", made.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.root = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
async def session(anyio_backend: str) -> AsyncIterator[aiohttp.ClientSession]:
    del anyio_backend
    async with scrape_session() as made:
        yield made
