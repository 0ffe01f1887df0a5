from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest

from forebay.emulator import ChatSpec, EmbeddingSpec, Emulator, EmulatorSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from forebay.emulator import Host

# Ten times as quick as the default host, so that tests are.
QUICK = EmulatorSpec(
    chat=ChatSpec(weights_s=0.001, token_s=1e-5, overhead_s=0.0002, prefill_overhead_s=0.004),
    embedding=EmbeddingSpec(weights_s=0.001, token_s=2e-6, overhead_s=0.003, dimensions=8),
)


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with Emulator(QUICK).running() as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
