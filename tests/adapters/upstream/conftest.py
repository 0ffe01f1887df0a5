"""Clients of servers that do exactly what a test tells them to."""

from __future__ import annotations

import asyncio

import pytest

from forebay.adapters.upstream import Upstream
from support.scripted import Server


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    ]
)
def anyio_backend(request):
    return request.param


@pytest.fixture
async def serve():
    """Start servers: ``serve(script, host=...)``, where the script gets each connection's Peer."""
    servers = []

    def start(script, **options):
        servers.append(Server(script, **options))
        return servers[-1]

    yield start
    for server in servers:
        await server.aclose()


@pytest.fixture
async def connect():
    """Make clients that are closed at the end: ``connect(url, settings)``."""
    clients = []

    def make(*args):
        clients.append(Upstream(*args))
        return clients[-1]

    yield make
    for client in clients:
        await client.aclose()


async def _fetch(upstream, method=b"POST", body=b"{}", path=b"/v1/x"):
    response = await upstream.send(method, path, [], body, head_timeout_s=5)
    pieces = []
    while piece := await response.read(5):
        pieces.append(piece)
    return response, pieces


async def _until(predicate):
    async with asyncio.timeout(5):
        while not predicate():  # noqa: ASYNC110 - what is waited for is told by no event
            await asyncio.sleep(0)


@pytest.fixture
def until():
    """Let the loop turn until something holds: ``await until(lambda: ...)``."""
    return _until


@pytest.fixture
def fetch():
    """Send a request and read all of its response: ``response, pieces = await fetch(upstream)``."""
    return _fetch
