"""Against real engines: what they see at once never exceeds what was promised."""

from __future__ import annotations

import asyncio
import random

import aiohttp
import openai
import pytest

import forebay
from forebay.emulator import EngineName, Slow, Status
from support.configs import emulated
from support.sessions import inflight, waiting
from support.waiting import eventually

pytestmark = pytest.mark.anyio

BUDGET = 4


@pytest.fixture
async def clients(host):
    """OpenAI clients of the chat and of the embedding engine."""
    async with (
        openai.AsyncOpenAI(base_url=host.chat_url, api_key="-", max_retries=0) as chat,
        openai.AsyncOpenAI(base_url=host.embed_url, api_key="-", max_retries=0) as embedding,
    ):
        yield chat, embedding


async def test_an_embedding_storm_leaves_chat_its_slot(host, write, clients) -> None:
    chat, embedding = clients

    async def embed(text: str) -> list[float]:
        answer = await embedding.embeddings.create(
            model="embedding", input=text, encoding_format="float"
        )
        return answer.data[0].embedding

    async def ask(fb: forebay.Session) -> float:
        async with fb.slot("chat", timeout=5) as lease:
            stream = await chat.chat.completions.create(
                model="chat",
                messages=[{"role": "user", "content": "hello"}],
                max_tokens=5,
                stream=True,
            )
            async for _token in stream:
                lease.first_token(prompt_tokens=2)
            return lease.queued_s

    texts = [f"text number {n}" for n in range(150)]
    async with forebay.open(write(emulated(host, budget=BUDGET))) as fb:
        storm = asyncio.create_task(fb.map_concurrent(embed, texts, model="embedding"))
        await eventually(lambda: host.record()["embedding"]["inflight"] == BUDGET - 1)
        queued_s = [await ask(fb) for _ in range(5)]
        vectors = await storm
        assert [await embed(text) for text in texts[:3]] == vectors[:3]
    assert len(vectors) == len(texts)
    assert max(queued_s) < 0.05
    record = host.record()
    assert record["gpu"]["max_inflight"] <= BUDGET
    assert record["embedding"]["max_inflight"] == BUDGET - 1


async def test_no_storm_of_cancellations_lets_more_run_at_once_or_leaks_a_slot(host, write) -> None:
    rng = random.Random(7)
    url = f"{host.embed_url}/embeddings"
    body = {"model": "embedding", "input": "some text"}
    # On a connection of its own, no request overtakes the news that another one was dropped.
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as http,
        forebay.open(write(emulated(host, budget=BUDGET))) as fb,
    ):

        async def one() -> None:
            async with fb.slot("embedding"), http.post(url, json=body) as answer:
                await answer.read()

        async def some(items: int) -> None:
            await fb.map_concurrent(lambda _: post(), range(items), model="embedding")

        async def post() -> None:
            async with http.post(url, json=body) as answer:
                await answer.read()

        for _ in range(15):
            tasks = [asyncio.create_task(one()) for _ in range(12)]
            tasks += [asyncio.create_task(some(5)) for _ in range(3)]
            while tasks:
                await asyncio.sleep(rng.random() / 200)
                for task in rng.sample(tasks, k=min(3, len(tasks))):
                    task.cancel()
                tasks = [task for task in tasks if not task.done()]
            assert (inflight(fb), waiting(fb)) == (0, 0)
            # What was cancelled may still be on its way out of the engine.
            await eventually(lambda: host.record()["gpu"]["inflight"] == 0)
        async with asyncio.timeout(5):
            await one()
        breaker = next(iter(fb.status()["endpoints"].values()))["breaker"]
    assert host.record()["gpu"]["max_inflight"] <= BUDGET
    assert breaker["failures"] == 0


async def test_a_flaky_endpoint_gets_every_item_done_or_told(host, write, clients) -> None:
    _, embedding = clients
    host.faults.add(Status(engine=EngineName.EMBEDDING, status=429, probability=0.2))
    host.faults.add(Slow(engine=EngineName.EMBEDDING, factor=3, next=20))

    async def embed(text: str) -> int:
        answer = await embedding.embeddings.create(
            model="embedding", input=text, encoding_format="float"
        )
        return len(answer.data)

    async with forebay.open(write(emulated(host, budget=BUDGET))) as fb:
        results = await fb.map_concurrent(
            embed, ["text"] * 100, model="embedding", on_error="collect"
        )
        assert inflight(fb) == 0
    kinds = {type(result) for result in results}
    assert kinds == {int, openai.RateLimitError}
    assert host.record()["gpu"]["max_inflight"] <= BUDGET
