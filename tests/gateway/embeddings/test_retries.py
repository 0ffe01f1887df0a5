"""A piece that fails at one endpoint is embedded by another; its siblings stay as they are."""

from __future__ import annotations

import json

import pytest

from support.embedder import Embedder, embeddings, refusal, texts
from support.http_responses import json_response
from support.waiting import eventually
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio


def two(first, second, **more):
    """An embedder ``m`` on two hosts; pieces of five texts."""
    endpoints = [
        {"base_url": f"{server.url}/v1", "gpu_group": f"gpu-{n}", "engine": "unknown"}
        for n, server in enumerate((first, second))
    ]
    entry = {"id": "m", "endpoints": endpoints, "max_concurrent_requests": 4, "piece_tokens": 50}
    return {
        "embedding_models": [entry],
        "forebay": {"limit": "fixed"},
        "MODEL_BREAKER_FAIL_THRESHOLD": 1000,
        **more,
    }


async def ask(running, inputs, **more):
    async with connected(running.port) as wire:
        body = {"model": "m", "input": inputs, **more}
        return await wire.ask("POST", "/v1/embeddings", body, [JSON])


def failing(answer):
    return lambda _: answer


def inputs(count):
    return texts(count, padding=" " * 36)  # ten tokens each


@pytest.mark.parametrize(
    "answer",
    [
        refusal("500 Internal Server Error", "CUDA error"),
        json_response({"message": "overloaded"}, "Retry-After: 1", status="429 Too Many Requests"),
        refusal("503 Service Unavailable", "Loading model"),
        refusal("401 Unauthorized", "no"),
        json_response({"object": "list", "data": []}),  # no vector for any input
        json_response({"error": {"message": "CUDA error", "code": 500}}),
    ],
)
async def test_every_input_gets_its_vector_from_whoever_works(serve, gateway, answer):
    bad, good = Embedder(serve, failing(answer)), Embedder(serve)
    running = await gateway(two(bad, good))
    got = await ask(running, inputs(20))
    assert got.status == 200
    assert [item["embedding"][0] for item in got.json["data"]] == list(range(20))
    assert sorted(good.sizes) == [5, 5, 5, 5]
    assert running.counted("forebay_retries_total", model="m") == len(bad.sizes)
    await eventually(lambda: running.idle)


async def test_half_an_answer_is_not_kept(serve, gateway):
    class CutOnce:
        def __init__(self):
            self.url = serve(self.script).url

        async def script(self, peer):
            while request := await peer.request():
                body = json.loads(request.partition(b"\r\n\r\n")[2])
                asked.append(self)
                if len(asked) == 1:
                    await peer.send(embeddings(body)[:-20])
                    peer.close()
                    return
                await peer.send(embeddings(body))

    asked = []
    running = await gateway(two(CutOnce(), CutOnce()))
    got = await ask(running, inputs(5))
    assert [item["embedding"][0] for item in got.json["data"]] == list(range(5))
    assert len(set(asked)) == len(asked) == 2


async def test_when_all_fail_the_last_answer_comes_as_it_is(serve, gateway):
    bad = [Embedder(serve, failing(refusal("500 No", f"host {n}"))) for n in range(2)]
    got = await ask(await gateway(two(*bad)), inputs(3))
    assert got.status == 500
    assert got.json["message"] in {"host 0", "host 1"}
    assert [len(server.sizes) for server in bad] == [1, 1]


async def test_a_wrong_input_is_asked_once(serve, gateway):
    answer = refusal("400 Bad Request", "no such input")
    bad = [Embedder(serve, failing(answer)) for _ in range(2)]
    assert (await ask(await gateway(two(*bad)), inputs(3))).status == 400
    assert sum(len(server.sizes) for server in bad) == 1
