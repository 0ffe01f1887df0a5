"""MiniLM on llama.cpp, and OpenAI's own client."""

from __future__ import annotations

import asyncio
import base64
import re
import struct

import openai
import pytest

from forebay.adapters.engines.batching import BatchLimits
from forebay.core.model import ServiceClass
from support.embedder import Embedder, one_embedder, refusal, texts, vector
from support.embedder import embeddings as answered
from support.waiting import eventually
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio


@pytest.fixture
async def running(llamacpp_embed, gateway):
    entry = {"id": "minilm", "base_url": llamacpp_embed.base_url, "max_concurrent_requests": 8}
    settings = {"limit": "fixed", "scrape_interval_s": 60}
    running = await gateway({"embedding_models": [entry], "forebay": settings})
    (target,) = running.deployment.targets.values()
    await eventually(lambda: target.engine.name == "llamacpp")
    return running


def client_of(running):
    return openai.AsyncOpenAI(base_url=running.base_url, api_key="none", max_retries=0)


async def raw(running, **request):
    async with connected(running.port) as wire:
        return await wire.ask("POST", "/v1/embeddings", {"model": "minilm", **request}, [JSON])


async def test_openais_client_which_asks_for_base64(running):
    inputs = ["water behind the dam", "turbines", "water behind the dam"]
    async with client_of(running) as client:
        result = await client.embeddings.create(model="minilm", input=inputs)
    vectors = [item.embedding for item in result.data]
    assert [item.index for item in result.data] == [0, 1, 2]
    assert [len(one) for one in vectors] == [384] * 3
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-4)
    assert vectors[0] != pytest.approx(vectors[1], abs=1e-2)
    assert result.usage.prompt_tokens > 0


async def test_both_encodings_are_the_same_vector(running):
    floats = (await raw(running, input="turbines")).json["data"][0]["embedding"]
    encoded = (await raw(running, input="turbines", encoding_format="base64")).json
    packed = base64.b64decode(encoded["data"][0]["embedding"])
    assert struct.unpack("<384f", packed) == pytest.approx(floats, abs=1e-6)


async def test_a_batch_in_pieces_is_the_batch(running):
    inputs = [f"text number {number}" for number in range(20)]
    whole = (await raw(running, input=inputs)).json
    (target,) = running.deployment.targets.values()
    target.scraper.batch_limits = BatchLimits(max_inputs=3)
    pieces = (await raw(running, input=inputs)).json
    assert running.counted("forebay_requests_total", outcome="ok") == 8
    assert pieces["usage"] == whole["usage"]
    assert [item["index"] for item in pieces["data"]] == list(range(20))
    for one, other in zip(pieces["data"], whole["data"], strict=True):
        assert one["embedding"] == pytest.approx(other["embedding"], abs=1e-3)


@pytest.fixture
async def beside_chat(llamacpp_embed, llamacpp_chat, gateway):
    """Starts a gateway for both engines on one GPU with three slots, one of them chat's."""

    async def start(**more):
        shared = {"gpu_group": "gpu", "engine": "llamacpp"}
        return await gateway(
            {
                "chat_models": [
                    {"id": "tiny", "base_url": llamacpp_chat.base_url, "max_parallel_calls": 1}
                    | shared
                ],
                "embedding_models": [
                    {"id": "minilm", "base_url": llamacpp_embed.base_url} | shared | more
                ],
                "GPU_CONCURRENCY_BUDGETS": {"gpu": 3},
                "forebay": {"limit": "fixed"},
            }
        )

    return start


NUMBER = re.compile(rb"-?[0-9]+\.[0-9]+(?:e-?[0-9]+)?")


async def test_the_answer_of_pieces_has_the_bytes_of_the_unsplit_one_but_for_noise(beside_chat):
    """llama.cpp's vectors differ in their last digits with what else is in its batch."""
    whole, pieces = await beside_chat(piece_tokens=0), await beside_chat(piece_tokens=64)
    inputs = [f"text number {number} " + "of water " * (number % 9) for number in range(60)]
    expected, got = await raw(whole, input=inputs), await raw(pieces, input=inputs)
    assert pieces.counted("forebay_requests_total", outcome="ok") > 10
    assert NUMBER.sub(b"0", got.body) == NUMBER.sub(b"0", expected.body)
    assert got.json["usage"] == expected.json["usage"]
    for one, other in zip(got.json["data"], expected.json["data"], strict=True):
        assert one["embedding"] == pytest.approx(other["embedding"], abs=1e-3)
    encoded = (await raw(pieces, input=inputs, encoding_format="base64")).json
    assert encoded["usage"] == expected.json["usage"]
    for one, other in zip(encoded["data"], expected.json["data"], strict=True):
        unpacked = struct.unpack("<384f", base64.b64decode(one["embedding"]))
        assert unpacked == pytest.approx(other["embedding"], abs=1e-3)


async def test_chats_first_token_is_not_behind_a_request_of_500_texts(beside_chat):
    running = await beside_chat(piece_tokens=256)
    limiter = running.deployment.limiter
    limiter.try_slot(limiter.ticket("tiny", ServiceClass.INTERACTIVE, timeout_s=60))  # its floor
    inputs = [f"text number {number}" for number in range(500)]
    asking = asyncio.create_task(raw(running, input=inputs))
    await eventually(lambda: running.inflight == 3)
    async with client_of(running) as client:
        stream = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=4, stream=True
        )
        await anext(aiter(stream))
        assert not asking.done()
        await stream.close()
    answer = await asking
    assert [item["index"] for item in answer.json["data"]] == list(range(500))
    await eventually(lambda: running.inflight == 1)


async def test_token_ids_pass(running):
    flat = await raw(running, input=[2300, 2369])
    nested = await raw(running, input=[[2300, 2369], [2300]])
    assert (flat.status, nested.status) == (200, 200)
    assert len(flat.json["data"]) == 1
    assert len(nested.json["data"]) == 2


async def test_a_text_too_long_for_the_model_is_named_by_its_index(running):
    inputs = texts(20)
    inputs[13] = "far too long " * 2000
    answer = await raw(running, input=inputs)
    assert answer.status == 413
    assert answer.error["message"].startswith("input[13] is too large")
    assert running.breaker("minilm")["state"] == "closed"
    await eventually(lambda: running.idle)


async def test_openais_client_on_a_server_that_takes_two_and_no_base64(serve, gateway):
    def behave(request):
        if request.get("encoding_format") == "base64":
            return refusal("400 Bad Request", "base64 encoding is not currently supported")
        if len(request["input"]) > 2:
            return refusal("422 Unprocessable Entity", "maximum allowed batch size 2")
        return answered(request)

    running = await gateway(one_embedder(Embedder(serve, behave).url))
    async with client_of(running) as client:
        result = await client.embeddings.create(model="m", input=texts(7))
        assert [item.embedding for item in result.data] == [vector(text) for text in texts(7)]
        with pytest.raises(openai.BadRequestError, match=r"input\[1\] is an empty text"):
            await client.embeddings.create(model="m", input=["ok", ""])
