"""Batch work goes on at the fallback when the endpoint of an item fails."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

import anyio
import openai
import pytest

import forebay
from forebay.emulator import EmbeddingSpec, Emulator, EmulatorSpec
from support.flaky import failing_over

pytestmark = pytest.mark.anyio

PRIMARY, FALLBACK = "http://127.0.0.1:9/v1", "http://127.0.0.2:9/v1"


@pytest.fixture
def opened(write):
    """Opens a session over a primary and its fallback, where nobody listens."""

    def opened(**more):
        return forebay.open(write(failing_over(PRIMARY, FALLBACK, **more)))

    return opened


class Hosts:
    """What the two endpoints do with an item."""

    def __init__(self, fb):
        self.fb = fb
        self.primary_is_up = self.fallback_is_up = True
        self.asked: list[tuple[str, str, int]] = []

    async def embed(self, item):
        lease = self.fb.current_lease()
        base_url = lease.endpoint.base_url
        self.asked.append((base_url, lease.model, item))
        await asyncio.sleep(0.001)
        if not (self.primary_is_up if base_url == PRIMARY else self.fallback_is_up):
            raise ConnectionRefusedError("nobody listens")
        return item * 2


async def test_an_item_whose_endpoint_failed_is_done_at_the_fallback(opened) -> None:
    async with opened() as fb:
        hosts = Hosts(fb)
        hosts.primary_is_up = False
        results = await fb.map_concurrent(hosts.embed, range(50), model="m")
        assert results == [item * 2 for item in range(50)]
        tried = [item for url, _, item in hosts.asked if url == PRIMARY]
        assert 1 <= len(tried) == len(set(tried)) <= 8
        assert fb.embedding_endpoint_status()["primary_breaker"]["state"] == "open"


async def test_the_lease_names_the_url_and_the_model_to_send(opened) -> None:
    async with opened(fallback_model="other/m") as fb:
        hosts = Hosts(fb)
        hosts.primary_is_up = False
        await fb.map_concurrent(hosts.embed, [1], model="m")
        assert hosts.asked == [(PRIMARY, "m", 1), (FALLBACK, "other/m", 1)]
        async with fb.slot("m") as lease:
            assert (lease.endpoint.base_url, lease.model) == (FALLBACK, "other/m")


async def test_an_error_of_ones_own_is_raised_at_once(opened) -> None:
    async with opened() as fb:
        asked = []

        async def embed(item):
            asked.append(item)
            raise ValueError(item)

        with pytest.raises(ValueError, match="7"):
            await fb.map_concurrent(embed, [7], model="m")
        assert asked == [7]


async def test_when_both_fail_the_last_error_is_the_items(opened) -> None:
    async with opened() as fb:
        hosts = Hosts(fb)
        hosts.primary_is_up = hosts.fallback_is_up = False
        (error,) = await fb.map_concurrent(hosts.embed, [1], model="m", on_error="collect")
        assert isinstance(error, ConnectionRefusedError)
        assert [url for url, _, _ in hosts.asked] == [PRIMARY, FALLBACK]


async def test_without_a_fallback_the_error_is_raised_as_ever(config) -> None:
    async with forebay.open(config()) as fb:
        asked = []

        async def embed(item):
            asked.append(item)
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await fb.map_concurrent(embed, [1], model="embed")
        assert asked == [1]


async def test_the_status_tells_of_it_and_reading_changes_nothing(opened, caplog) -> None:
    caplog.set_level(logging.INFO)
    async with opened() as fb:
        hosts = Hosts(fb)
        status = fb.embedding_endpoint_status()
        assert (status["active_model_key"], status["is_fallback"]) == ("embedding", False)
        hosts.primary_is_up = False
        await fb.map_concurrent(hosts.embed, range(5), model="m")
        for key in (None, "m", "embedding", "embedding:fallback", "embed:fallback"):
            status = fb.embedding_endpoint_status(key)
            assert status["active_model_key"] == "embedding:fallback"
            assert status["active_base_url"] == FALLBACK
            assert status["active_gpu_group"] == "shared"
            assert status["is_fallback"] is True
            assert (status["failover_count"], status["recovery_count"]) == (1, 0)
        assert sum("failover model=m" in r.getMessage() for r in caplog.records) == 1

        hosts.primary_is_up = True
        with anyio.fail_after(5):
            while fb.embedding_endpoint_status()["is_fallback"]:
                await asyncio.sleep(0.02)
                await fb.map_concurrent(hosts.embed, [1], model="m")
        status = fb.embedding_endpoint_status()
        assert (status["failover_count"], status["recovery_count"]) == (1, 1)
        assert sum("recovery model=m" in r.getMessage() for r in caplog.records) == 1


async def test_another_model_is_no_embedder(opened) -> None:
    async with opened(chat_url="http://127.0.0.3:9/v1") as fb:
        with pytest.raises(forebay.Rejected, match="no embedding model 'chat'"):
            fb.embedding_endpoint_status("chat")


QUICK = EmulatorSpec(
    embedding=EmbeddingSpec(weights_s=0.004, token_s=2e-6, overhead_s=0.003, dimensions=8)
)


async def test_a_batch_outlives_the_primary_under_it(write) -> None:
    async with AsyncExitStack() as stack:
        shared = await stack.enter_async_context(Emulator(QUICK).running())
        alive = await stack.enter_async_context(AsyncExitStack())
        primary = await alive.enter_async_context(Emulator(QUICK).running())
        clients = {
            url: await stack.enter_async_context(
                openai.AsyncOpenAI(base_url=url, api_key="-", max_retries=0)
            )
            for url in (primary.embed_url, shared.embed_url)
        }
        config = failing_over(
            primary.embed_url,
            shared.embed_url,
            model="embedding",
            fallback_model="embedding",
            chat_url=shared.chat_url,
        )
        fb = await stack.enter_async_context(forebay.open(write(config)))
        done = 0

        async def embed(text):
            nonlocal done
            lease = fb.current_lease()
            answer = await clients[lease.endpoint.base_url].embeddings.create(
                model=lease.model, input=text, encoding_format="float"
            )
            done += 1
            if done == 60:
                await alive.aclose()
            return answer.data[0].embedding

        texts = [f"text {n}" for n in range(300)]
        vectors = await fb.map_concurrent(embed, texts, model="embedding")
        assert len(vectors) == 300
        assert all(len(vector) == 8 for vector in vectors)
        assert 0 < shared.record()["embedding"]["max_inflight"] <= 4
        assert fb.embedding_endpoint_status()["failover_count"] == 1
