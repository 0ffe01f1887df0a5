"""Another configuration comes into force while requests run and wait."""

from __future__ import annotations

import json
import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest

from forebay.config import plan_from
from forebay.emulator.faults import Hang
from support.configs import emulated, entry, one_chat
from support.embedder import Embedder, embeddings
from support.endpoint import Endpoint
from support.http_responses import json_response
from support.waiting import eventually
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
STREAM = {
    "model": "chat",
    "messages": [{"role": "user", "content": "x"}],
    "stream": True,
    "max_tokens": 300,
    "ignore_eos": True,
}
SHORT = {**STREAM, "stream": False, "max_tokens": 1}
OK = json_response({"choices": [], "usage": {}})


def of_another_model(request):
    """Vectors that have another direction."""
    data = [{"index": n, "embedding": [1.0, 3.0]} for n in range(len(request["input"]))]
    return json_response({"object": "list", "data": data})


def apply(running, config):
    """What that changed, in words."""
    text = json.dumps(config)
    return str(running.deployment.apply(plan_from(text, file="test.json", environ={})))


async def ask(running, body=SHORT, path=CHAT, headers=()):
    async with connected(running.port) as wire:
        return await wire.ask("POST", path, body, [JSON, *headers])


def chats(*urls, ceiling=1, **more):
    """One model on several servers, each on a GPU of its own."""
    servers = [{"base_url": url, "gpu_group": f"gpu-{n}"} for n, url in enumerate(urls)]
    model = {"id": "chat", "endpoints": servers, "max_concurrent_requests": ceiling}
    model |= {"engine": "unknown"}
    return {"chat_models": [model], "forebay": {"limit": "fixed", **more}}


@asynccontextmanager
async def streaming(running):
    """A stream that has begun."""
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, STREAM)
        await wire.head()
        yield wire


async def test_what_waits_is_served_at_once_by_an_endpoint_that_comes(host, serve, gateway):
    new = Endpoint(serve, OK)
    running = await gateway(chats(host.chat_url))
    async with streaming(running) as wire, anyio.create_task_group() as tasks:
        answers = []

        async def waiting():
            answers.append(await ask(running))

        tasks.start_soon(waiting)
        await eventually(lambda: running.queued == 1)
        said = apply(running, chats(host.chat_url, f"{new.url}/v1"))
        assert said == f"added chat@{new.url.removeprefix('http://')}"
        await eventually(lambda: len(answers) == 1)
        assert answers[0].head["x-forebay-endpoint"] in said
        assert (await wire.rest())[-1] == b"data: [DONE]\n\n"


async def test_an_endpoint_that_goes_finishes_what_it_has_and_is_let_go_then(host, serve, gateway):
    stays = Endpoint(serve, OK)
    running = await gateway(chats(host.chat_url))
    (gone,) = running.status()["endpoints"]
    target = running.deployment.targets[gone]
    async with streaming(running) as wire:
        apply(running, chats(f"{stays.url}/v1", ceiling=8))
        for _ in range(5):
            answer = await ask(running)
            assert answer.head["x-forebay-endpoint"] != gone
        assert running.status()["endpoints"][gone]["draining"] is True
        assert running.inflight == 1
        assert (await wire.rest())[-1] == b"data: [DONE]\n\n"
    await eventually(lambda: gone not in running.status()["endpoints"])
    assert gone not in running.deployment.targets
    async with connected(running.port) as wire:
        metrics = (await wire.ask("GET", "/metrics", None)).body.decode()
    assert f'endpoint="{gone}"' not in metrics
    assert f'endpoint="chat@{stays.url.removeprefix("http://")}"' in metrics
    await eventually(lambda: target.upstream.stats().open == 0)
    assert host.record()["chat"]["finished"] == 1


async def test_who_waits_for_a_model_that_goes_is_told_at_once(host, gateway):
    config = emulated(host, chat=1)
    running = await gateway(config)
    async with streaming(running) as wire, anyio.create_task_group() as tasks:
        answers = []

        async def waiting():
            answers.append(await ask(running))

        tasks.start_soon(waiting)
        await eventually(lambda: running.queued == 1)
        del config["chat_models"]
        apply(running, config)
        await eventually(lambda: len(answers) == 1, within_s=1)
        assert (answers[0].status, answers[0].error["code"]) == (503, "unavailable")
        assert "retry-after" in dict(answers[0].head.headers)
        after = await ask(running)
        assert (after.status, after.error["code"]) == (404, "model_not_found")
        assert (await wire.rest())[-1] == b"data: [DONE]\n\n"


async def test_a_model_without_an_endpoint_is_known_and_unavailable(host, gateway):
    config = emulated(host)
    source = {"discover": "dns://nothing.invalid:8000/v1"}
    config["chat_models"] = [{"id": "chat", "endpoints": [source]}]
    running = await gateway(config)
    answer = await ask(running)
    assert (answer.status, answer.error["code"]) == (503, "unavailable")
    async with connected(running.port) as wire:
        listed = await wire.ask("GET", "/v1/models", None)
    assert {model["id"] for model in listed.json["data"]} == {"chat", "embedding"}
    model = running.status()["models"]["chat"]
    assert (model["endpoints"], model["capacity"]) == ([], 0)


async def test_a_new_key_counts_with_the_next_request_and_nothing_is_forgotten(serve, gateway):
    server = Endpoint(serve, OK)
    running = await gateway(one_chat(server.url, api_key="sk-old-old-old", ceiling=5))
    body = {**SHORT, "model": "m"}
    assert (await ask(running, body)).status == 200
    before = running.deployment.limiter.admission.states
    state = next(iter(before.values()))
    assert "changed" in apply(running, one_chat(server.url, api_key="sk-new-new-new", ceiling=5))
    assert (await ask(running, body)).status == 200
    assert dict(server.headers)["authorization"] == "Bearer sk-new-new-new"
    assert next(iter(running.deployment.limiter.admission.states.values())) is state


async def test_a_request_under_way_ends_on_the_client_that_it_began_with(host, gateway):
    running = await gateway(emulated(host))
    async with streaming(running) as wire:
        (before,) = [t for t in running.deployment.targets.values() if t.endpoint.model == "chat"]
        config = emulated(host)
        config["chat_models"][0]["api_key"] = "sk-new-new-new"
        apply(running, config)
        assert (await ask(running)).status == 200
        assert (await wire.rest())[-1] == b"data: [DONE]\n\n"
    await eventually(lambda: before.upstream.stats().open == 0)


async def test_budgets_and_bounds_move_under_requests_that_wait(host, gateway):
    host.faults.add(Hang(engine="chat"))
    running = await gateway(emulated(host, chat=1, budget=2))
    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(ask, running)
        await eventually(lambda: running.queued == 5)
        apply(running, emulated(host, chat=4, budget=4))
        await eventually(lambda: running.inflight == 4)
        apply(running, emulated(host, chat=2, budget=3))
        assert (running.inflight, running.status()["groups"]["gpu"]["budget"]) == (4, 3)
        apply(running, emulated(host, chat=6))
        await eventually(lambda: running.inflight == 6)
        host.faults.clear()
        running.stop_waiting()


async def test_an_endpoint_that_comes_back_while_it_drains_serves_on(host, serve, gateway):
    other = Endpoint(serve, OK)
    running = await gateway(chats(host.chat_url, ceiling=2))
    async with streaming(running) as wire:
        apply(running, chats(f"{other.url}/v1", ceiling=2))
        apply(running, chats(host.chat_url, ceiling=3))
        (endpoint,) = (e for e in running.status()["endpoints"].values() if not e["draining"])
        assert (endpoint["base_url"], endpoint["inflight"]) == (host.chat_url, 1)
        assert (await ask(running)).status == 200
        assert (await wire.rest())[-1] == b"data: [DONE]\n\n"
    await eventually(lambda: len(running.status()["endpoints"]) == 1)


async def test_one_that_comes_back_as_another_waits_until_the_first_has_gone(host, serve, gateway):
    other = Endpoint(serve, OK)
    running = await gateway(chats(host.chat_url))
    (id_,) = running.status()["endpoints"]
    async with streaming(running) as wire:
        apply(running, chats(f"{other.url}/v1"))
        again = chats(host.chat_url)
        again["chat_models"][0]["role"] = "batch"
        apply(running, again)
        assert running.status()["endpoints"][id_]["draining"] is True
        again["chat_models"][0]["endpoints"][0]["gpu_group"] = "other"
        again["chat_models"][0]["max_concurrent_requests"] = 5
        apply(running, again)  # of one that is not there yet
        assert (await wire.rest())[-1] == b"data: [DONE]\n\n"
    await eventually(lambda: not running.status()["endpoints"][id_]["draining"])
    endpoint = running.status()["endpoints"][id_]
    assert (endpoint["class"], endpoint["ceiling"]) == ("best_effort", 5)
    assert endpoint["gpu_group"] == "other"
    assert (await ask(running)).status == 200


async def test_an_endpoint_that_stays_keeps_its_class_and_that_is_said(host, gateway):
    running = await gateway(chats(host.chat_url))
    changed = chats(host.chat_url)
    changed["chat_models"][0]["role"] = "batch"
    apply(running, changed)
    (id_,) = running.status()["endpoints"]
    assert running.deployment.needs_restart() == (f"role or fallback of {id_}",)
    (endpoint,) = running.status()["endpoints"].values()
    assert (endpoint["role"], endpoint["class"]) == ("batch", "interactive")
    assert (await ask(running)).status == 200


async def test_embeddings_go_to_endpoints_that_come_and_come_whole_from_those_that_go(
    serve, gateway
):
    class Plain(Endpoint):
        async def _script(self, peer):
            while request := await peer.request():
                self.requests.append(request)
                await peer.send(embeddings(json.loads(self.body)))

    def config(*servers):
        made = [
            entry("m", f"{s.url}/v1", ceiling=1, engine="unknown", gpu_group=f"gpu-{n}")
            for n, s in enumerate(servers)
        ]
        return {"embedding_models": made, "forebay": {"limit": "fixed", "identity": None}}

    first, second = Plain(serve), Plain(serve)
    running = await gateway(config(first))
    failed = []

    async def embed():
        answer = await ask(running, {"model": "m", "input": ["t1", "t2"]}, "/v1/embeddings")
        if answer.status != 200 or len(answer.json["data"]) != 2:
            failed.append(answer)

    for servers in ((first, second), (second,), (second, first), (first,)):
        async with anyio.create_task_group() as tasks:
            for n in range(30):
                tasks.start_soon(embed)
                if n == 15:
                    await eventually(lambda: running.inflight > 0)
                    apply(running, config(*servers))
    assert not failed
    assert len(first.requests) + len(second.requests) == 120
    assert min(len(first.requests), len(second.requests)) > 15


async def test_settings_of_the_gateway_itself_move(host, gateway):
    running = await gateway(emulated(host))
    keys = [{"name": "app", "key": "sk-client-secret", "admin": True}]
    said = apply(
        running,
        emulated(host, forebay={"api_keys": keys, "body_limit_bytes": 200, "log_level": "error"}),
    )
    assert said == (
        "set forebay.api_keys, forebay.body_limit_bytes 67108864->200, forebay.log_level"
    )
    try:
        assert (await ask(running)).status == 401
        key = ("authorization", "Bearer sk-client-secret")
        assert (await ask(running, headers=[key])).status == 200
        assert (await ask(running, {**SHORT, "user": "x" * 300}, headers=[key])).status == 413
        assert logging.getLogger().level == logging.ERROR
    finally:
        logging.getLogger().setLevel(logging.WARNING)


async def test_time_outs_and_queues_move(host, gateway):
    host.faults.add(Hang(engine="chat"))
    running = await gateway(emulated(host, chat=1))
    own = {"timeouts": {"request_s": 0.2}, "queue": {"max_requests": 1}}
    apply(running, emulated(host, chat=1, forebay=own))
    codes = []

    async def asked():
        codes.append((await ask(running)).error["code"])

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(asked)
    assert sorted(codes) == ["deadline", "deadline", "queue_full"]


async def test_retry_budgets_follow_the_endpoints(serve, gateway):
    servers = [Endpoint(serve, OK) for _ in range(2)]
    running = await gateway(chats(f"{servers[0].url}/v1", ceiling=3))
    budget = running.deployment.retries._retries.budgets["chat"]
    strands = budget.left
    apply(running, chats(*(f"{s.url}/v1" for s in servers), ceiling=3))
    assert budget.left == 2 * strands > 0


async def test_the_time_that_an_answer_may_take_follows_the_file(serve, gateway):
    silent = serve(lambda peer: peer.gone())

    def config(**of_model):
        return one_chat(silent.url, forebay={"timeouts": {"first_byte_s": 1}}, **of_model)

    async def takes():
        started = time.monotonic()
        answer = await ask(running, SHORT | {"model": "m"})
        assert answer.status == 504
        return time.monotonic() - started

    running = await gateway(config(first_byte_s=0.02))
    assert await takes() < 1
    apply(running, config())
    assert await takes() >= 1
    apply(running, config(first_byte_s=0.04))
    assert 0.04 <= await takes() < 1


async def test_a_model_whose_primary_is_replaced_is_failed_over_no_more(serve, gateway):
    fallback, new = Embedder(serve), Embedder(serve)

    def config(primary_url):
        spare = {"id": "m", "base_url": f"{fallback.url}/v1", "gpu_group": "spare"}
        entry_ = {"id": "m", "base_url": primary_url, "gpu_group": "gpu"}
        return {
            "embedding_models": [{**entry_, "fallback": spare}],
            "MODEL_BREAKER_FAIL_THRESHOLD": 1,
            "forebay": {"identity": None},
        }

    running = await gateway(config("http://127.0.0.1:1/v1"))
    state = running.deployment.limiter.admission.states["m@127.0.0.1:1"]
    await ask(running, {"model": "m", "input": "t1"}, "/v1/embeddings")
    status = running.deployment.embedding_endpoint_status
    await eventually(lambda: state.broken(running.deployment.limiter.now()))
    assert status()["is_fallback"] is True
    apply(running, config(f"{new.url}/v1"))
    assert status()["is_fallback"] is False
    assert status()["active_base_url"] == f"{new.url}/v1"


async def test_nothing_is_left_open_when_it_ends_while_an_endpoint_drains(host, serve):
    from support.running_gateway import running_gateway  # noqa: PLC0415

    other = Endpoint(serve, OK)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_gateway(chats(host.chat_url)))
        wire = await stack.enter_async_context(streaming(running))
        apply(running, chats(f"{other.url}/v1"))
        del wire
    await eventually(lambda: host.record()["chat"]["inflight"] == 0)


class TestVectorsOfAnotherModel:
    """An endpoint that comes is compared, as one that was there from the start is."""

    def config(self, *servers):
        made = [
            entry("m", f"{s.url}/v1", engine="unknown", gpu_group=f"gpu-{n}")
            for n, s in enumerate(servers)
        ]
        return {"embedding_models": made, "forebay": {"limit": "fixed"}}

    async def embed(self, running):
        return await ask(running, {"model": "m", "input": ["t1", "t2"]}, "/v1/embeddings")

    async def test_do_not_come_from_an_endpoint_that_comes(self, serve, gateway):
        first, other, same = Embedder(serve), Embedder(serve, of_another_model), Embedder(serve)
        running = await gateway(self.config(first))
        assert (await self.embed(running)).status == 200
        assert first.probes == 0, "with one endpoint there is nothing to compare"
        apply(running, self.config(first, other, same))
        await eventually(lambda: self.reference(running) is not None)
        await eventually(lambda: running.idle)
        vectors = set()
        for _ in range(20):
            answer = await self.embed(running)
            assert answer.status in {200, 502}
            if answer.status == 200:
                vectors.add(str(answer.json["data"][0]["embedding"]))
        assert len(vectors) == 1
        assert sorted([bool(first.requests), bool(other.requests), bool(same.requests)])[1:] == [
            True,
            True,
        ]

    async def test_do_not_come_from_another_server_at_the_address_of_one_that_went(
        self, serve, gateway
    ):
        answers = embeddings

        def changing(request):
            return answers(request)

        first, second = Embedder(serve), Embedder(serve, changing)
        running = await gateway(self.config(first, second))
        await eventually(lambda: self.reference(running) is not None)
        for _ in range(8):
            assert (await self.embed(running)).status == 200
        await eventually(lambda: running.idle)
        apply(running, self.config(first))
        await eventually(lambda: len(running.status()["endpoints"]) == 1)
        answers = of_another_model
        before = len(second.requests)
        apply(running, self.config(first, second))
        for _ in range(8):
            assert (await self.embed(running)).status == 200
        assert len(second.requests) == before
        assert second.probes == 2

    async def test_a_model_that_went_and_came_begins_anew(self, serve, gateway):
        first, other = Embedder(serve), Embedder(serve, of_another_model)
        running = await gateway(self.config(first, Embedder(serve)))
        await eventually(lambda: self.reference(running) is not None)
        chat = chats(f"{Endpoint(serve, OK).url}/v1")
        apply(running, chat)
        await eventually(lambda: len(running.status()["endpoints"]) == 1)
        apply(running, self.config(other, Embedder(serve, of_another_model)))
        assert (await self.embed(running)).status == 200

    def reference(self, running):
        return running.status()["models"]["m"]["identity"]["reference"]
