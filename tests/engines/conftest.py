"""Real engines behind a real gateway process, asked as users ask them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import openai
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from forebay.demo.engines import Engine
    from forebay.demo.gateway import Gateway


@pytest.fixture
def gateway(
    llamacpp_chat: Engine,
    llamacpp_embed: Engine,
    start_gateway: Callable[[dict[str, Any]], Gateway],
) -> Gateway:
    """llama.cpp with a chat model and with MiniLM, on one GPU with a budget of 6."""
    return start_gateway(
        {
            "chat_models": [_entry(llamacpp_chat, max_parallel_calls=2)],
            "embedding_models": [_entry(llamacpp_embed, max_parallel_calls=1)],
            "GPU_CONCURRENCY_BUDGETS": {"gpu": 6},
        }
    )


def _entry(engine: Engine, **more: object) -> dict[str, Any]:
    return {
        "id": engine.model,
        "base_url": engine.base_url,
        "gpu_group": "gpu",
        "max_concurrent_requests": 8,
        **more,
    }


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=gateway.base_url, api_key="unused", max_retries=0, timeout=60
    ) as client:
        yield client


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
