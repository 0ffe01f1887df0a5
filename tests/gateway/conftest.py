from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from forebay.emulator import ChatSpec, EmbeddingSpec, Emulator, EmulatorSpec
from support.running_gateway import running_gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from forebay.emulator import Host

# Quick, and its answers are long enough to leave in the middle of them.
QUICK = EmulatorSpec(
    chat=ChatSpec(weights_s=0.002, token_s=1e-5, overhead_s=0.0002, prefill_overhead_s=0.002),
    embedding=EmbeddingSpec(weights_s=0.001, token_s=2e-6, overhead_s=0.003, dimensions=8),
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The event loop that the gateway runs on."""
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with Emulator(QUICK).running() as running:
        yield running


@pytest.fixture
async def hosts() -> AsyncIterator[Any]:
    """Start several of them: ``one, two = await hosts(2)``."""
    async with AsyncExitStack() as stack:

        async def start(count, address="127.0.0.1"):
            emulators = [Emulator(QUICK).running(address) for _ in range(count)]
            return [await stack.enter_async_context(running) for running in emulators]

        yield start


@pytest.fixture
async def gateway() -> AsyncIterator[Any]:
    """Start gateways in this process: ``await gateway(config)``."""
    async with AsyncExitStack() as stack:
        yield partial(_start, stack)


async def _start(stack: AsyncExitStack, config: dict[str, Any]) -> Any:
    return await stack.enter_async_context(running_gateway(config))
