"""Endpoints that do what a test says."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from support.scripted import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def serve() -> AsyncIterator[Any]:
    """Start scripted endpoints: ``serve(script)``, where the script gets each connection's Peer."""
    async with AsyncExitStack() as stack:

        def start(script):
            server = Server(script)
            stack.push_async_callback(server.aclose)
            return server

        yield start
