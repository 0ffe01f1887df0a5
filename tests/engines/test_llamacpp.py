"""Two real llama.cpp servers behind the gateway."""

from __future__ import annotations

import math

import anyio
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "once upon a time"}]
WITHIN_S = 10


async def busy_slots(http, engine):
    async with http.get(f"{engine.root}/slots") as response:
        return sum(slot["is_processing"] for slot in await response.json())


async def status(http, gateway):
    async with http.get(f"{gateway.url}/forebay/status") as response:
        return await response.json()


async def inflight(http, gateway, *engines):
    counts = [(await status(http, gateway))["groups"]["gpu"]["inflight"]]
    return sum(counts + [await busy_slots(http, engine) for engine in engines])


async def until_idle(http, gateway, *engines):
    """Nothing is in flight, in the gateway and in the engines."""
    with anyio.fail_after(WITHIN_S):
        while await inflight(http, gateway, *engines):  # noqa: ASYNC110 - another process counts
            await anyio.sleep(0.01)


async def test_a_chat_whole_and_streamed(client):
    whole = await client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=16, temperature=0
    )
    assert whole.choices[0].message.content
    assert whole.usage.completion_tokens == 16
    stream = await client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=16, temperature=0, stream=True
    )
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    assert "".join(pieces) == whole.choices[0].message.content


async def test_two_hundred_streams_in_a_row_never_meet_its_closed_connections(
    client, http, gateway
):
    """It closes the connection after each stream, having announced to keep it."""
    for _ in range(200):
        stream = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=2, stream=True
        )
        assert [chunk async for chunk in stream]
    chat = next(
        e for e in (await status(http, gateway))["endpoints"].values() if e["model"] == "tiny"
    )
    assert (chat["breaker"]["state"], chat["breaker"]["failures"]) == ("closed", 0)


async def test_leaving_frees_its_slot(client, http, gateway, llamacpp_chat):
    for _ in range(5):
        stream = await client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            max_tokens=900,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        async for _ in stream:
            break
        assert await busy_slots(http, llamacpp_chat) == 1
        await stream.close()
        await until_idle(http, gateway, llamacpp_chat)


async def test_cancelling_a_plain_request_frees_the_gateways_slot(client, http, gateway):
    """The engine itself computes on: it looks for its client only when it streams."""
    with anyio.move_on_after(0.2):
        await client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=200, extra_body={"ignore_eos": True}
        )
    await until_idle(http, gateway)


async def test_embeddings_mean_something(client):
    texts = [
        "A cat sits on the mat.",
        "A kitten is lying on a rug.",
        "Interest rates rose by half a percent.",
    ]
    packed = await client.embeddings.create(model="minilm", input=texts)
    plain = await client.embeddings.create(model="minilm", input=texts, encoding_format="float")
    cat, kitten, rates = (each.embedding for each in packed.data)
    assert len(cat) == 384
    assert math.isclose(sum(x * x for x in cat), 1, rel_tol=1e-3)
    assert cosine(cat, kitten) > 0.5
    assert cosine(cat, rates) < 0.3
    for one, other in zip(packed.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-4)


async def test_an_error_of_the_engine_is_the_clients_to_read(client):
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model="tiny", messages="nonsense")


async def test_a_storm_never_takes_more_than_the_budget(
    client, http, gateway, llamacpp_chat, llamacpp_embed
):
    seen = []
    async with anyio.create_task_group() as tasks:

        async def chat():
            for _ in range(3):
                stream = await client.chat.completions.create(
                    model="tiny", messages=MESSAGES, max_tokens=40, stream=True
                )
                assert [chunk async for chunk in stream]

        async def embed():
            while True:
                answer = await client.embeddings.create(
                    model="minilm", input=["some words to embed " * 20] * 4
                )
                assert len(answer.data) == 4

        async def watch():
            while True:
                seen.append(await measured(http, gateway))
                await anyio.sleep(0.01)

        tasks.start_soon(watch)
        for _ in range(12):
            tasks.start_soon(embed)
        async with anyio.create_task_group() as chats:
            for _ in range(8):
                chats.start_soon(chat)
        tasks.cancel_scope.cancel()
    assert max(sum(each.values()) for each in seen) <= 6
    assert max(each["tiny"] for each in seen) >= 2
    assert max(each["minilm"] for each in seen) >= 1
    await until_idle(http, gateway, llamacpp_chat, llamacpp_embed)


async def measured(http, gateway):
    """Requests in flight by model, as Prometheus sees them."""
    async with http.get(f"{gateway.url}/metrics") as response:
        text = await response.text()
    counts = {"tiny": 0, "minilm": 0}
    for family in text_string_to_metric_families(text):
        if family.name == "forebay_inflight":
            for sample in family.samples:
                counts[sample.labels["model"]] += int(sample.value)
    return counts


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))
