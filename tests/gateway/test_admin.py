"""Health, metrics, status, models: what operators and clients see of the gateway itself."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from forebay.emulator.faults import Hang, Reset
from support.configs import emulated, entry, one_chat
from support.endpoint import Endpoint
from support.http_responses import json_response, response
from support.waiting import eventually
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"


async def got(running, path, method="GET"):
    async with connected(running.port) as wire:
        return await wire.ask(method, path, None)


async def test_health_and_readiness(serve, gateway):
    async def script(peer):
        await peer.request()
        peer.reset()

    running = await gateway(one_chat(serve(script).url, MODEL_BREAKER_FAIL_THRESHOLD=1))
    health = await got(running, "/healthz")
    assert health.json == {"status": "ok"}
    assert health.head["date"].endswith(" GMT")
    ready = (await got(running, "/readyz")).json
    assert ready == {"ready": True, "unavailable": [], "unfit": []}
    async with connected(running.port) as wire:
        await wire.ask("POST", CHAT, b'{"model":"m"}')
    not_ready = await got(running, "/readyz")
    assert not_ready.status == 503
    assert not_ready.json["ready"] is False
    assert (await got(running, "/healthz")).status == 200


async def test_it_starts_and_is_ready_while_no_endpoint_can_be_reached(serve, gateway):
    server = serve(None)
    await server.aclose()
    running = await gateway(one_chat(server.url, engine="vllm"))
    assert (await got(running, "/readyz")).status == 200
    assert (await got(running, "/v1/models")).json["data"][0]["id"] == "m"
    assert (await got(running, "/forebay/status")).status == 200


async def test_the_models_are_listed_once_with_what_their_servers_say(host, serve, gateway):
    config = emulated(host)
    listed = {"data": [{"id": "chat", "max_model_len": 7}, {"id": "more"}, 3, {"id": None}]}
    second = Endpoint(serve, json_response(listed))
    config["chat_models"].append(entry("chat", f"{second.url}/v1", engine="unknown"))
    config["chat_models"].append(entry("dead", "http://127.0.0.1:9/v1", engine="unknown"))
    running = await gateway(config)
    answer = await got(running, "/v1/models")
    assert answer.json["object"] == "list"
    models = {model["id"]: model for model in answer.json["data"]}
    assert list(models) == ["chat", "dead", "embedding"]
    assert all(model["object"] == "model" for model in models.values())
    assert models["chat"]["max_model_len"] in {7, host.spec.chat.max_model_tokens}

    one = await got(running, "/v1/models/chat")
    assert one.json["id"] == "chat"
    missing = await got(running, "/v1/models/more")
    assert (missing.status, missing.error["code"]) == (404, "model_not_found")
    assert (await got(running, "/v1/models", "POST")).status == 405


async def test_the_servers_are_not_asked_again_for_every_list_of_models(serve, gateway):
    endpoint = Endpoint(serve, json_response({"data": [{"id": "m", "max_model_len": 7}]}))
    running = await gateway(one_chat(endpoint.url))
    endpoint.requests.clear()
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(got, running, "/v1/models")
    assert (await got(running, "/v1/models/m")).json["max_model_len"] == 7
    assert len([r for r in endpoint.requests if r.startswith(b"GET /v1/models")]) == 1


async def test_a_page_that_fails_says_so_and_the_log_tells_why(serve, gateway, monkeypatch, caplog):
    running = await gateway(one_chat(Endpoint(serve).url))
    monkeypatch.setattr(type(running.deployment), "status", None)
    answer = await got(running, "/forebay/status")
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert "'NoneType' object is not callable" in caplog.text
    assert "Traceback" in caplog.text


async def test_status_tells_of_one_instant_under_load(host, gateway):
    running = await gateway(emulated(host, chat=6, embedding=6, budget=5))
    checked = 0

    async def chats():
        body = {"model": "chat", "messages": [{"role": "user", "content": "x"}], "max_tokens": 5}
        async with connected(running.port) as wire:
            while True:
                await wire.ask("POST", CHAT, body)

    async def embeddings():
        async with connected(running.port) as wire:
            while True:
                await wire.ask("POST", "/v1/embeddings", {"model": "embedding", "input": ["x"] * 4})

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(chats)
            tasks.start_soon(embeddings)
        await eventually(lambda: running.inflight == 5)
        async with connected(running.port) as wire:
            for _ in range(50):
                status = (await wire.ask("GET", "/forebay/status", None)).json
                group = status["groups"]["gpu"]
                members = [
                    count for member in group["members"].values() for count in member.values()
                ]
                endpoints = status["endpoints"].values()
                assert sum(members) == group["inflight"] <= group["budget"] == 5
                assert sum(endpoint["inflight"] for endpoint in endpoints) == group["inflight"]
                checked += group["inflight"] > 0
        tasks.cancel_scope.cancel()
    assert checked > 40
    await eventually(lambda: running.idle)


async def test_status_names_everything_and_no_secret(host, gateway):
    config = emulated(host, budget=5)
    config["chat_models"][0]["api_key"] = "sk-secret-of-chat"
    running = await gateway(config)
    answer = await got(running, "/forebay/status")
    assert b"sk-secret" not in answer.body
    chat = next(e for e in answer.json["endpoints"].values() if e["model"] == "chat")
    assert {"limit", "limit_reason", "floor", "ceiling", "breaker", "class", "role"} <= set(chat)
    assert chat["base_url"] == host.chat_url
    assert set(answer.json["models"]) == {"chat", "embedding"}
    assert set(answer.json["config"]) == {
        "path",
        "loaded_at",
        "reload_error",
        "needs_restart",
        "reloads",
        "sources",
    }


async def test_metrics_are_valid_and_count(host, gateway):
    running = await gateway(emulated(host, budget=5))
    body = {"model": "chat", "messages": [{"role": "user", "content": "x"}], "max_tokens": 8}
    host.faults.add(Reset(engine="embedding", next=1))
    async with connected(running.port) as wire:
        await wire.ask("POST", CHAT, {**body, "stream": True, "ignore_eos": True})
        await wire.ask("POST", "/v1/embeddings", {"model": "embedding", "input": "x"})
        await wire.ask("POST", CHAT, {"model": "nobody"})
        answer = await wire.ask("GET", "/metrics", None)
    samples = {
        (sample.name, sample.labels.get("model"), sample.labels.get("outcome")): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }
    assert samples["forebay_requests_total", "chat", "ok"] == 1
    assert samples["forebay_requests_total", "embedding", "failure"] == 1
    assert samples["forebay_first_token_seconds_count", "chat", None] == 1
    assert samples["forebay_output_token_seconds_count", "chat", None] == 1
    assert samples["forebay_budget", None, None] == 5
    assert samples["forebay_inflight", "chat", None] == 0
    assert "nobody" not in answer.body.decode()  # labels come from the configuration alone


VLLM = 'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_waiting{engine="0"} 0.0\n'
SLEEPING = (
    'vllm:num_requests_running{engine="0"} 0.0\n'
    'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0.0\n'
)


def engine_saying(serve, says):
    """A server of which everybody reads `says["page"]`, and 500 where there is none."""

    async def script(peer):
        while await peer.request():
            page = says["page"]
            status = "500 No" if page is None else "200 OK"
            await peer.send(response((page or "").encode(), status=status))

    return serve(script).url


async def test_status_shows_what_engines_say_and_not_what_they_said_long_ago(serve, gateway):
    says = {"page": VLLM}
    every = {"scrape_interval_s": 0.3}
    running = await gateway(one_chat(engine_saying(serve, says), engine="vllm", forebay=every))

    def told():
        endpoint = running.endpoint("m")
        return (endpoint["signal"] or {}).get("running"), endpoint["signal_failure"]

    await eventually(lambda: told() == (3, None))
    says["page"] = None
    await eventually(lambda: told() == (None, "/metrics answered 500"))
    says["page"] = VLLM
    await eventually(lambda: told() == (3, None))


async def test_a_host_that_sleeps_is_no_capacity(serve, gateway):
    says = {"page": SLEEPING}
    hosts = [engine_saying(serve, says), engine_saying(serve, {"page": VLLM})]
    models = [entry("m", f"{url}/v1", engine="vllm") for url in hosts]
    own = {"limit": "fixed", "scrape_interval_s": 0.1}
    running = await gateway({"chat_models": models, "forebay": own})
    await eventually(lambda: running.status()["models"]["m"]["capacity"] == 8)
    says["page"] = VLLM
    await eventually(lambda: running.status()["models"]["m"]["capacity"] == 16)


async def test_the_status_tells_what_those_wait_for_that_wait(host, gateway):
    for engine in ("chat", "embedding"):
        host.faults.add(Hang(engine=engine))
    config = emulated(host, budget=6, forebay={"protection": {}, "limit": "knee"})
    running = await gateway(config)

    def waits_for():
        endpoint = running.endpoint("embedding")
        return endpoint["waits_for"], endpoint["queued"]["best_effort"]

    async with AsyncExitStack() as stack:

        async def hangs(path, body):
            wire = await stack.enter_async_context(connected(running.port))
            await wire.send("POST", path, body, [JSON])

        await hangs(CHAT, {"model": "chat", "messages": []})
        await eventually(lambda: running.inflight == 1)
        for _ in range(3):
            await hangs("/v1/embeddings", {"model": "embedding", "input": "x"})
        await eventually(lambda: running.inflight + running.queued == 4)
        assert waits_for() == ({"best_effort": "share"}, 2)
        assert running.endpoint("chat")["waits_for"] == {}
    await eventually(lambda: running.idle)
    assert waits_for() == ({}, 0)


async def test_the_reason_of_a_limit_that_is_not_reached_tells_what_holds_those_that_wait(
    host, gateway
):
    config = emulated(host, budget=2, forebay={"limit": "gradient_aimd"})
    running = await gateway(config | {"MODEL_AUTOSCALE_WINDOW": 2})
    told = "; what waits, waits for: reserve"

    def reason():
        return running.endpoint("embedding")["limit_reason"]

    async def asks():
        async with connected(running.port) as wire:
            while True:
                body = {"model": "embedding", "input": "x"}
                await wire.ask("POST", "/v1/embeddings", body, [JSON])

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(asks)
        await eventually(
            lambda: reason().startswith("held: not in use") and reason().endswith(told)
        )
        tasks.cancel_scope.cancel()
    await eventually(lambda: running.idle)
    assert told not in reason(), "nobody waits any more"


class TestTheEmbeddingEndpoint:
    PATH = "/forebay/embedding-endpoint-status"

    async def test_without_a_fallback_it_is_the_primary(self, host, gateway):
        running = await gateway(emulated(host))
        answer = await got(running, self.PATH)
        assert answer.status == 200
        status = answer.json
        breaker = status.pop("primary_breaker")
        assert (breaker["state"], breaker["trips"]) == ("closed", 0)
        assert status == {
            "model": "embedding",
            "active_model_key": "embedding",
            "active_base_url": host.embed_url,
            "active_gpu_group": "gpu",
            "serving": True,
            "is_fallback": False,
            "fallback_configured": False,
            "fallback_unfit": None,
            "failover_count": 0,
            "recovery_count": 0,
            "identity": None,
        }

    @pytest.mark.parametrize(
        "key", ["embedding", "embedding:fallback", "embed:fallback", "embedding-fallback"]
    )
    async def test_either_key_means_the_embedder(self, gateway, key):
        config = one_chat("http://127.0.0.1:9")
        config["embedding_models"] = [entry("e", "http://127.0.0.2:9/v1")]
        running = await gateway(config)
        assert (await got(running, f"{self.PATH}?model={key}")).json["model"] == "e"

    async def test_without_an_embedder_it_is_404(self, gateway):
        running = await gateway(one_chat("http://127.0.0.1:9"))
        answer = await got(running, self.PATH)
        assert (answer.status, answer.error["code"]) == (404, "unknown_model")
        assert (await got(running, f"{self.PATH}?model=m")).status == 404

    async def test_it_needs_an_admins_key_where_there_are_keys(self, host, gateway):
        keys = {"api_keys": [{"name": "a", "key": "k"}]}
        running = await gateway(emulated(host, forebay=keys))
        assert (await got(running, self.PATH)).status == 401
