from __future__ import annotations

import asyncio
import io
import json
import math
from typing import TYPE_CHECKING, Any

import openai
import pytest

from forebay.emulator import EmbeddingSpec, Emulator, EmulatorSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from forebay.emulator import Host

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(host: Host) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=host.embed_url, api_key="-", max_retries=0) as client:
        yield client


def origin(host: Host) -> str:
    return host.embed_url.removesuffix("/v1")


async def test_vectors_have_length_one_and_depend_on_the_text_alone(
    client: openai.AsyncOpenAI,
) -> None:
    one = await client.embeddings.create(model="embedding", input=["a", "b", "a"])
    other = await client.embeddings.create(model="embedding", input="a")
    a, b, again = (item.embedding for item in one.data)
    assert a == again == other.data[0].embedding != b
    assert len(a) == 8
    assert math.hypot(*a) == pytest.approx(1, abs=1e-6)
    assert [item.index for item in one.data] == [0, 1, 2]


async def test_base64_and_float_are_the_same_vector(client: openai.AsyncOpenAI) -> None:
    # The client asks for base64 unless told otherwise, and decodes it.
    packed = await client.embeddings.create(model="embedding", input="text")
    plain = await client.embeddings.create(model="embedding", input="text", encoding_format="float")
    assert packed.data[0].embedding == plain.data[0].embedding


async def test_usage_counts_the_tokens_of_all_inputs(client: openai.AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model="embedding", input=["x" * 40, "y" * 8, "z"])
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 10 + 2 + 1


@pytest.mark.parametrize(
    ("inputs", "documents"), [([9906, 1917], 1), ([[9906, 1917], [15339]], 2), (["", "ok"], 2)]
)
async def test_token_ids_and_empty_texts_are_documents(
    host: Host, http: aiohttp.ClientSession, inputs: object, documents: int
) -> None:
    async with http.post(f"{host.embed_url}/embeddings", json={"input": inputs}) as response:
        assert len((await response.json())["data"]) == documents


async def test_the_native_api_answers_with_bare_vectors(
    host: Host, http: aiohttp.ClientSession
) -> None:
    async with http.post(f"{origin(host)}/embed", json={"inputs": ["a", "b"]}) as response:
        vectors = await response.json()
    assert [len(vector) for vector in vectors] == [8, 8]


async def test_reranking_orders_by_score(host: Host, http: aiohttp.ClientSession) -> None:
    body = {"query": "q", "texts": ["a", "b", "c", "d"]}
    async with http.post(f"{origin(host)}/rerank", json=body) as response:
        ranks = await response.json()
    assert sorted(rank["index"] for rank in ranks) == [0, 1, 2, 3]
    scores = [rank["score"] for rank in ranks]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"input": []}, 400, "empty"),
        ({}, 422, "Validation"),
        ({"input": ["a", None]}, 422, "Validation"),
        ({"input": ["a", 5]}, 422, "Validation"),
        ({"input": ["text"] * 33}, 422, "batch_size"),
    ],
)
async def test_wrong_requests_are_refused_as_tei_does(
    host: Host, http: aiohttp.ClientSession, body: dict[str, Any], status: int, kind: str
) -> None:
    async with http.post(f"{host.embed_url}/embeddings", json=body) as response:
        error = await response.json()
        assert (response.status, error["code"], error["type"]) == (status, status, kind)


async def test_a_body_that_is_too_large_is_refused_in_plain_text(
    host: Host, http: aiohttp.ClientSession
) -> None:
    body = io.BytesIO(json.dumps({"input": ["x" * 100_000] * 21}).encode())
    async with http.post(f"{host.embed_url}/embeddings", data=body) as response:
        assert (response.status, response.content_type) == (413, "text/plain")
    assert host.record()["embedding"]["requests"] == 0


async def test_permits_count_texts_not_requests(http: aiohttp.ClientSession) -> None:
    spec = EmulatorSpec(embedding=EmbeddingSpec(max_concurrent_inputs=64, max_client_batch=128))

    async def embed(host: Host, texts: int) -> int:
        body = {"input": ["text"] * texts}
        async with http.post(f"{host.embed_url}/embeddings", json=body) as response:
            return response.status

    async with Emulator(spec).running() as host:
        assert await embed(host, 100) == 429
        assert sorted(await asyncio.gather(embed(host, 40), embed(host, 40))) == [200, 429]
        assert await embed(host, 64) == 200


async def test_info_tells_the_limits(host: Host, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{origin(host)}/info") as response:
        info = await response.json()
    assert info["model_id"] == "embedding"
    assert info["max_client_batch_size"] == 32
    assert info["max_concurrent_requests"] == 4096
    async with http.get(f"{host.embed_url}/models") as response:
        assert (await response.json())["data"][0]["id"] == "embedding"
    async with http.get(f"{origin(host)}/health") as response:
        assert response.status == 200


async def test_metrics_are_written_as_tei_writes_them(
    host: Host, http: aiohttp.ClientSession
) -> None:
    for texts in (["a"], ["a", "b"], []):
        async with http.post(f"{host.embed_url}/embeddings", json={"input": texts}) as response:
            await response.read()
    async with http.get(f"{origin(host)}/metrics") as response:
        text = await response.text()
    lines = text.splitlines()
    assert "# HELP" not in text
    assert 'te_request_count{method="single"} 1' in lines
    assert 'te_request_success{method="batch"} 1' in lines
    assert 'te_request_failure{err="empty"} 1' in lines
    assert "te_embed_success 3" in lines
    assert "te_queue_size 0" in lines
    assert "te_batch_next_size_count 2" in lines
    assert 'te_embed_queue_duration_bucket{le="+Inf"} 3' in lines
