"""A real llama.cpp server, read over real HTTP."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from forebay.adapters.engines.http import HttpFetch
from forebay.adapters.engines.infinity import Infinity
from forebay.adapters.engines.llamacpp import LlamaCpp
from forebay.adapters.engines.scraper import Scraper
from forebay.adapters.engines.vllm import Vllm
from forebay.core.model import Outcome

if TYPE_CHECKING:
    import aiohttp

    from forebay.core.model import Signal
    from forebay.demo.engines import Engine

pytestmark = pytest.mark.anyio

REQUESTS = 12  # more than it has slots


def scraper_of(engine: Engine, session: aiohttp.ClientSession) -> Scraper:
    return Scraper(
        root=engine.root,
        model=engine.model,
        fetch=HttpFetch(session),
        engines=(Infinity(), LlamaCpp(), Vllm()),
        on_signal=lambda _signal: None,
        rng=random.Random(1),
    )


async def generate(session: aiohttp.ClientSession, engine: Engine) -> int:
    body = {"model": engine.model, "prompt": "once upon a time", "max_tokens": 96}
    url = f"{engine.root}/v1/completions"
    async with session.post(url, json=body, timeout=None) as response:
        await response.read()
        return response.status


async def test_it_is_recognised_and_tells_its_slots_at_rest(
    llamacpp_chat: Engine, session: aiohttp.ClientSession
) -> None:
    scraper = scraper_of(llamacpp_chat, session)
    signal = await scraper.read()

    assert scraper.engine.name == "llamacpp"
    assert signal is not None
    assert (signal.running, signal.waiting, signal.saturated) == (0, 0, False)
    assert signal.slots is not None
    assert signal.slots < REQUESTS
    assert signal.warnings == 0


async def test_it_is_seen_to_saturate_when_more_is_asked_than_it_has_slots(
    llamacpp_chat: Engine, session: aiohttp.ClientSession
) -> None:
    scraper = scraper_of(llamacpp_chat, session)
    work = asyncio.gather(*(generate(session, llamacpp_chat) for _ in range(REQUESTS)))
    fullest: Signal | None = None
    while not work.done():
        signal = await scraper.read()
        if signal is not None and signal.saturated:
            fullest = signal

    assert set(await work) == {200}
    assert fullest is not None
    assert fullest.running == fullest.slots
    assert fullest.waiting


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "word " * 20_000, "max_tokens": 4}),
        ("/v1/chat/completions", {"messages": "nonsense"}),
    ],
    ids=["too long", "nonsense"],
)
async def test_what_is_wrong_with_a_request_says_nothing_about_it(
    llamacpp_chat: Engine, session: aiohttp.ClientSession, path: str, body: dict[str, object]
) -> None:
    url = f"{llamacpp_chat.root}{path}"
    async with session.post(url, json={"model": llamacpp_chat.model, **body}) as response:
        said = await response.read()
    outcome = LlamaCpp().classify(response.status, dict(response.headers), said)

    assert outcome is Outcome.CLIENT_ERROR, said


async def test_what_it_was_not_started_for_is_configuration(
    llamacpp_chat: Engine, session: aiohttp.ClientSession
) -> None:
    body = {"model": llamacpp_chat.model, "input": "x"}
    async with session.post(f"{llamacpp_chat.root}/v1/embeddings", json=body) as response:
        said = await response.read()
    outcome = LlamaCpp().classify(response.status, dict(response.headers), said)

    assert outcome is Outcome.CONFIGURATION, said
