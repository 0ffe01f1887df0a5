"""A piece that fails at one endpoint is embedded by another; its siblings stay as they are."""

from __future__ import annotations

import asyncio
import json

import pytest

from support.embedder import Embedder, embeddings, refusal, texts, vector
from support.flaky import failing_over
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
        "forebay": {"limit": "fixed", "identity": None},
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


def takes(count, *, until=None):
    """Takes so many inputs at once, and says so; breaks after so many requests."""
    asked = []

    def behave(request):
        asked.append(request)
        if until is not None and len(asked) > until:
            return refusal("503 Service Unavailable", "shutting down")
        if len(request["input"]) > count:
            said = f"batch size {len(request['input'])} > maximum allowed batch size {count}"
            return refusal("422 Unprocessable Entity", said)
        return embeddings(request)

    return behave


async def fail_over(serve, gateway, primary, fallback):
    """A hundred texts, of which the primary does not serve all; what each was asked for."""
    own, other = Embedder(serve, primary), Embedder(serve, fallback)
    config = failing_over(f"{own.url}/v1", f"{other.url}/v1")
    config["embedding_models"][0]["max_concurrent_requests"] = 1
    got = await ask(await gateway(config), texts(100))
    assert got.status == 200
    assert [item["embedding"] for item in got.json["data"]] == [vector(t) for t in texts(100)]
    return own.sizes, other.sizes


async def test_what_is_left_is_cut_anew_for_a_fallback_that_takes_more(serve, gateway):
    own, other = await fail_over(serve, gateway, takes(10, until=2), takes(100))
    assert own == [100, 10, 10]
    assert sum(other) == 90
    assert len(other) <= 2, "what failed at the primary, and what had not been asked for yet"


async def test_what_is_left_is_cut_anew_for_a_fallback_that_takes_less(serve, gateway):
    own, other = await fail_over(serve, gateway, takes(100, until=0), takes(10))
    assert own == [100]
    assert sorted(other) == [10] * 10 + [100]


async def test_an_input_that_fails_at_one_endpoint_is_asked_of_the_other(serve, gateway):
    def behave(request):
        if any(text.startswith("t7 ") for text in request["input"]):
            return refusal("500 Internal Server Error", "CUDA out of memory")
        return embeddings(request)

    bad, good = Embedder(serve, behave), Embedder(serve)
    config = two(bad, good)
    config["embedding_models"][0]["piece_tokens"] = 0
    running = await gateway(config)
    # One host has room for four of them, so either of the two gets some.
    for got in await asyncio.gather(*(ask(running, inputs(20)) for _ in range(6))):
        assert got.status == 200, got.body
        assert [item["embedding"][0] for item in got.json["data"]] == list(range(20))
    assert bad.sizes


async def test_pieces_of_one_request_run_on_both_hosts_at_once(serve, gateway):
    working, met = set(), asyncio.Event()

    def gate(host):
        async def behave(request):
            working.add(host)
            if len(working) == 2:
                met.set()
            await met.wait()
            return embeddings(request)

        return behave

    hosts = [Embedder(serve, gate(host)) for host in "ab"]
    got = await ask(await gateway(two(*hosts)), inputs(20))
    assert [item["embedding"][0] for item in got.json["data"]] == list(range(20))
    assert sorted(hosts[0].sizes + hosts[1].sizes) == [5, 5, 5, 5]
