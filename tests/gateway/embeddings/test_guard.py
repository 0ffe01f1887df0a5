"""Vectors of another model never reach a caller."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

import pytest

from forebay.emulator import EmbeddingSpec, Emulator, EmulatorSpec, EngineName, Status
from forebay.proxy.embeddings.guard import PROBE
from support.embedder import Embedder, embeddings, refusal, texts
from support.flaky import Flaky, failing_over
from support.http_responses import json_response
from support.waiting import eventually
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

FAILS = refusal("500 Internal Server Error", "broken")
TIMES = {"weights_s": 0.001, "overhead_s": 0.002, "token_s": 1e-6}


async def ask(running, inputs, *headers):
    async with connected(running.port) as wire:
        body = {"model": "m", "input": inputs}
        return await wire.ask("POST", "/v1/embeddings", body, [JSON, *headers])


def guarded(primary, fallback, **identity):
    return failing_over(f"{primary}/v1", f"{fallback}/v1", forebay={"identity": identity})


def known(running):
    return running.status()["models"]["m"]["identity"]


def states(running):
    return [endpoint["state"] for endpoint in known(running)["endpoints"].values()]


async def referenced(running):
    await eventually(lambda: known(running)["reference"] is not None)
    await eventually(lambda: running.idle)


async def cooled_down(running):
    """The next request tries the primary; its status rounds, which is not enough."""
    limiter = running.deployment.limiter
    primary = next(iter(limiter.admission.states.values()))
    await eventually(lambda: not primary.broken(limiter.now()))


def of_another_model(request):
    """Its vectors have another direction."""
    data = [{"index": n, "embedding": [1.0, 3.0]} for n in range(len(request["input"]))]
    return json_response({"object": "list", "data": data})


def one_more_dimension(request):
    data = [{"index": n, "embedding": [0.0, -0.5, 0.0]} for n in range(len(request["input"]))]
    return json_response({"object": "list", "data": data})


class TestAStandIn:
    async def test_the_same_model_serves_after_one_call_of_one_input(self, serve, gateway):
        primary, fallback = Flaky(serve), Embedder(serve)
        running = await gateway(guarded(primary.url, fallback.url))
        await referenced(running)
        assert [r["input"] for r in primary.requests] == [[PROBE]]
        assert fallback.bodies == []
        primary.mode = "reset"
        answers = await asyncio.gather(*(ask(running, texts(3)) for _ in range(8)))
        assert {answer.status for answer in answers} == {200}
        assert fallback.probes == 1
        assert len(fallback.requests) == 8
        assert states(running) == ["unverified", "same"]
        await eventually(lambda: running.idle)

    @pytest.mark.parametrize("behave", [of_another_model, one_more_dimension])
    async def test_another_model_does_not_serve(self, serve, gateway, caplog, behave):
        primary, fallback = Flaky(serve), Embedder(serve, behave)
        running = await gateway(guarded(primary.url, fallback.url))
        await referenced(running)
        primary.mode = "reset"
        for _ in range(3):
            answer = await ask(running, texts(3))
            assert answer.status in {502, 503}
            assert answer.error["code"] in {"identity_mismatch", "unavailable"}
        assert (fallback.probes, fallback.requests) == (1, [])
        assert states(running) == ["unverified", "different"]
        assert "has other vectors and is not used" in caplog.text
        await eventually(lambda: running.idle)

    async def test_what_is_found_is_logged_once_however_many_ask(self, serve, gateway, caplog):
        def gives_none(request):
            if request["input"] == [PROBE]:
                return refusal("400 Bad Request", "input_type is required")
            return embeddings(request)

        caplog.set_level(logging.INFO)
        behave = of_another_model

        def behaves(request):
            return behave(request)

        primary, fallback = Flaky(serve), Embedder(serve, behaves)
        running = await gateway(guarded(primary.url, fallback.url))
        await referenced(running)
        primary.mode = "reset"

        async def told_while_asking():
            """What is told of the fallback, which is compared anew."""
            caplog.clear()
            running.deployment.identity.of("m").identity.doubt(f"m@{fallback.url[7:]}")
            for _ in range(20):
                await ask(running, texts(1))
            return [
                (record.levelname, record.getMessage().partition(f"{fallback.url[7:]} ")[2])
                for record in caplog.records
                if fallback.url[7:] in record.getMessage()
            ]

        found = await told_while_asking()
        assert [level for level, _ in found] == ["WARNING"]
        assert found[0][1].startswith("has other vectors and is not used: cosine -0.9487")
        assert await told_while_asking() == [], "nothing has changed"
        behave = one_more_dimension
        found = await told_while_asking()
        assert [level for level, _ in found] == ["WARNING"]
        assert "3 dimensions" in found[0][1]
        behave = gives_none
        found = await told_while_asking()
        assert [level for level, _ in found] == ["WARNING"]
        assert "input_type is required" in found[0][1]
        behave = embeddings
        found = await told_while_asking()
        assert [level for level, _ in found] == ["INFO"]
        assert found[0][1].startswith("has the model's vectors: cosine 1.0000")

    async def test_it_is_logged_again_in_the_next_outage(self, serve, gateway, caplog):
        primary, fallback = Flaky(serve), Embedder(serve, of_another_model)
        running = await gateway(guarded(primary.url, fallback.url))
        await referenced(running)
        for outages in (1, 2):
            primary.mode = "reset"
            for _ in range(5):
                await ask(running, texts(1))
            assert caplog.text.count("has other vectors and is not used") == outages
            primary.mode = "ok"
            await cooled_down(running)
            assert (await ask(running, texts(1))).status == 200

    async def test_the_refusal_tells_which_and_why(self, serve, gateway):
        primary, fallback = Flaky(serve), Embedder(serve, of_another_model)
        running = await gateway(guarded(primary.url, fallback.url))
        await referenced(running)
        primary.mode = "reset"
        answer = await ask(running, texts(3))
        assert (answer.status, answer.error["code"]) == (502, "identity_mismatch")
        assert "gives other vectors than 'm' has (cosine -0.9487 to m@" in answer.error["message"]

    async def test_it_serves_again_once_the_primary_is_back(self, serve, gateway):
        primary, fallback = Flaky(serve), Embedder(serve, of_another_model)
        running = await gateway(guarded(primary.url, fallback.url))
        await referenced(running)
        primary.mode = "reset"
        await ask(running, texts(3))
        primary.mode = "ok"
        await cooled_down(running)
        assert (await ask(running, texts(3))).status == 200
        assert fallback.requests == []

    async def test_a_primary_that_comes_back_as_another_model_does_not(self, serve, gateway):
        primary, fallback = Flaky(serve), Embedder(serve)
        running = await gateway(guarded(primary.url, fallback.url))
        await referenced(running)
        assert (await ask(running, texts(1))).status == 200
        primary.mode = "reset"
        assert (await ask(running, texts(1))).status == 200
        primary.mode = of_another_model({"input": [PROBE]})
        await cooled_down(running)
        for _ in range(4):
            answer = await ask(running, texts(1))
            assert answer.status == 200
            assert answer.head["x-forebay-endpoint"] == f"m@{fallback.url.removeprefix('http://')}"
        assert primary.requests[-1]["input"] == [PROBE]
        assert states(running) == ["different", "same"]
        assert len(fallback.requests) == 5

    async def test_where_the_bound_is_lower_it_serves(self, serve, gateway):
        primary = Flaky(serve)
        fallback = Embedder(serve, lambda r: _all(r, [0.1, -0.5]))  # cosine 0.9806
        running = await gateway(guarded(primary.url, fallback.url, min_cosine=0.98))
        await referenced(running)
        primary.mode = "reset"
        assert (await ask(running, texts(3))).status == 200

    async def test_where_the_bound_is_higher_it_does_not(self, serve, gateway):
        primary = Flaky(serve)
        fallback = Embedder(serve, lambda r: _all(r, [0.1, -0.5]))
        running = await gateway(guarded(primary.url, fallback.url, min_cosine=0.99))
        await referenced(running)
        primary.mode = "reset"
        assert (await ask(running, texts(3))).error["code"] == "identity_mismatch"

    async def test_one_that_gives_no_vector_of_a_text_does_not_serve(self, serve, gateway):
        def behave(request):
            if request["input"] == [PROBE]:
                return refusal("400 Bad Request", "input_type is required")
            return embeddings(request)

        primary, fallback = Flaky(serve), Embedder(serve, behave)
        running = await gateway(guarded(primary.url, fallback.url))
        await referenced(running)
        primary.mode = "reset"
        answer = await ask(running, texts(3))
        assert (answer.status, answer.error["code"]) == (502, "identity_unverified")
        assert "input_type is required" in answer.error["message"]
        assert states(running) == ["unverified", "incomparable"]
        await ask(running, texts(3))
        assert (fallback.probes, fallback.requests) == (1, [])

    async def test_one_that_calls_the_model_differently_is_asked_by_that_name(self, serve, gateway):
        primary, fallback = Flaky(serve), Flaky(serve)
        config = guarded(primary.url, fallback.url)
        config["embedding_models"][0]["fallback"]["id"] = "other-name"
        running = await gateway(config)
        await referenced(running)
        primary.mode = "reset"
        assert (await ask(running, texts(3))).status == 200
        assert [r["model"] for r in fallback.requests] == ["other-name"] * 2

    async def test_off_nothing_is_asked(self, serve, gateway):
        primary, fallback = Flaky(serve), Embedder(serve, of_another_model)
        config = failing_over(f"{primary.url}/v1", f"{fallback.url}/v1")
        running = await gateway(config)
        primary.mode = "reset"
        assert (await ask(running, texts(3))).status == 200
        assert fallback.probes == 0
        assert known(running) is None


async def look(running, path):
    async with connected(running.port) as wire:
        answer = await wire.ask("GET", path, None)
        return answer.status, answer.json


class TestWhoeverLooks:
    """An operator sees who is unfit wherever there is to see who serves."""

    async def seen(self, running, fallback):
        _, status = await look(running, "/forebay/embedding-endpoint-status")
        code, ready = await look(running, "/readyz")
        id_ = f"m@{fallback.url.removeprefix('http://')}"
        gauge = running.counted("forebay_unfit", model="m", endpoint=id_, gpu_group="shared")
        assert ready["unfit"] == ([id_] if gauge else [])
        assert (code == 200) is ready["ready"] is status["serving"]
        keys = ("active_model_key", "is_fallback", "serving", "fallback_unfit")
        return (*(status[key] for key in keys), gauge)

    async def test_sees_that_the_fallback_does_not_serve(self, serve, gateway):
        behave = of_another_model

        def behaves(request):
            return behave(request)

        primary, fallback = Flaky(serve), Embedder(serve, behaves)
        running = await gateway(
            guarded(primary.url, fallback.url) | {"MODEL_BREAKER_BASE_COOLDOWN_S": 2}
        )
        await referenced(running)
        assert await self.seen(running, fallback) == ("embedding", False, True, None, 0)
        primary.mode = "reset"
        assert (await ask(running, texts(1))).status == 502
        serves = ("embedding", False, False)
        *state, why, gauge = await self.seen(running, fallback)
        assert (tuple(state), gauge) == (serves, 1)
        assert why.startswith("cosine -0.9487 to m@")
        behave = embeddings
        running.deployment.identity.of("m").identity.doubt(f"m@{fallback.url[7:]}")
        assert (await ask(running, texts(1))).status == 200
        assert await self.seen(running, fallback) == ("embedding:fallback", True, True, None, 0)

    async def test_sees_that_there_is_nothing_to_compare_it_with(self, serve, gateway):
        primary, fallback = Flaky(serve), Embedder(serve)
        primary.mode = "reset"
        config = guarded(primary.url, fallback.url) | {"MODEL_BREAKER_BASE_COOLDOWN_S": 2}
        running = await gateway(config)
        assert (await ask(running, texts(1))).status == 503
        why = "no regular endpoint of the model has answered since the gateway started"
        assert await self.seen(running, fallback) == ("embedding", False, False, why, 1)

    async def test_sees_that_the_fallback_serves_for_a_primary_that_is_unfit(self, serve, gateway):
        primary, fallback = Flaky(serve), Embedder(serve)
        running = await gateway(guarded(primary.url, fallback.url))
        await referenced(running)
        primary.mode = "reset"
        assert (await ask(running, texts(1))).status == 200
        primary.mode = of_another_model({"input": [PROBE]})
        await cooled_down(running)
        assert (await ask(running, texts(1))).status == 200
        assert states(running) == ["different", "same"]
        _, status = await look(running, "/forebay/embedding-endpoint-status")
        assert (status["is_fallback"], status["active_base_url"]) == (True, f"{fallback.url}/v1")


def _all(request, vector):
    data = [{"index": n, "embedding": vector} for n in range(len(request["input"]))]
    return json_response({"object": "list", "data": data})


class TestWithoutAReference:
    async def test_a_stand_in_does_not_serve(self, serve, gateway, caplog):
        primary, fallback = Flaky(serve), Embedder(serve)
        primary.mode = "reset"
        running = await gateway(guarded(primary.url, fallback.url))
        answer = await ask(running, texts(3))
        assert (answer.status, answer.error["code"]) == (503, "identity_unverified")
        assert "set forebay.identity.allow_unverified" in answer.error["message"]
        assert fallback.bodies == []
        assert states(running) == ["unverified", "unverified"]
        await ask(running, texts(3))
        assert caplog.text.count("is not used, and was not compared") == 1
        await eventually(lambda: running.idle)

    async def test_it_does_if_that_is_allowed(self, serve, gateway):
        primary, fallback = Flaky(serve), Embedder(serve)
        primary.mode = "reset"
        running = await gateway(guarded(primary.url, fallback.url, allow_unverified=True))
        for _ in range(2):
            assert (await ask(running, texts(3))).status == 200
        assert fallback.probes == 0

    async def test_the_first_request_of_the_primary_takes_it(self, serve, gateway):
        primary, fallback = Flaky(serve), Embedder(serve)
        primary.mode = "reset"
        running = await gateway(guarded(primary.url, fallback.url))
        await ask(running, texts(3))
        primary.mode = "ok"
        await cooled_down(running)
        await ask(running, texts(3))  # unless the gateway just asks for itself
        await eventually(lambda: known(running)["reference"] is not None)

    async def test_the_primary_serves_though_it_gives_no_vector_of_a_text(self, serve, gateway):
        def behave(request):
            if request["input"] == [PROBE]:
                return refusal("400 Bad Request", "input_type is required")
            return embeddings(request)

        primary = Embedder(serve, behave)
        running = await gateway(guarded(primary.url, Embedder(serve).url))
        for _ in range(3):
            assert (await ask(running, texts(3))).status == 200
        assert primary.probes <= 2, "when it starts, and with the first request"
        assert states(running) == ["trusted", "unverified"]


class TestSeveralRegularEndpoints:
    async def test_one_with_other_vectors_is_left_out(self, serve, gateway):
        """Who asked before that was known is sent elsewhere; who asks later is there at once."""
        good, bad = Embedder(serve), Embedder(serve, of_another_model)
        endpoints = [
            {"base_url": f"{s.url}/v1", "gpu_group": f"gpu-{n}", "engine": "unknown"}
            for n, s in enumerate((good, bad))
        ]
        entry = {"id": "m", "endpoints": endpoints, "max_concurrent_requests": 2}
        running = await gateway({"embedding_models": [entry], "forebay": {"limit": "fixed"}})
        await referenced(running)
        wrong = known(running)["reference"].endswith(bad.url.rpartition(":")[2])
        servers = (bad, good) if wrong else (good, bad)
        retries = []
        for _ in range(4):
            answers = await asyncio.gather(*(ask(running, texts(3)) for _ in range(8)))
            assert {answer.status for answer in answers} == {200}
            retries.append(running.counted("forebay_retries_total", model="m"))
        assert len(servers[0].requests) == 32
        assert (servers[1].probes, servers[1].requests) == (1, [])
        assert set(retries) == {retries[0]}
        assert all(e["breaker"]["failures"] == 0 for e in running.status()["endpoints"].values())

    async def test_one_that_hangs_holds_nobody_up_for_longer_than_once(self, serve, gateway):
        async def slow(request):
            await asyncio.sleep(0.05)
            return embeddings(request)

        hangs = Embedder(serve, lambda _: None)
        endpoints = [
            {"base_url": f"{server.url}/v1", "gpu_group": f"gpu-{n}", "engine": "unknown"}
            for n, server in enumerate((Embedder(serve, slow), hangs))
        ]
        entry = {"id": "m", "endpoints": endpoints, "max_concurrent_requests": 8}
        own = {"limit": "fixed", "timeouts": {"first_byte_s": 0.4}}
        running = await gateway({"embedding_models": [entry], "forebay": own})
        assert (await ask(running, texts(1))).status == 200
        assert known(running)["reference"] is not None
        async with asyncio.timeout(2):
            answers = await asyncio.gather(*(ask(running, texts(1)) for _ in range(16)))
        assert {answer.status for answer in answers} == {200}
        await eventually(lambda: running.idle)

    async def test_who_compares_and_leaves_hands_it_on(self, serve, gateway):
        answers, asked = asyncio.Event(), asyncio.Event()

        async def behave(request):
            asked.set()
            await answers.wait()
            return embeddings(request)

        primary, fallback = Flaky(serve), Embedder(serve, behave)
        running = await gateway(guarded(primary.url, fallback.url))
        await referenced(running)
        primary.mode = "reset"
        async with connected(running.port) as wire:
            await wire.send("POST", "/v1/embeddings", b'{"model":"m","input":"t1"}', [JSON])
            await asked.wait()
            async with asyncio.TaskGroup() as tasks:
                others = [tasks.create_task(ask(running, texts(1))) for _ in range(2)]
                await eventually(lambda: running.inflight == 3)
                wire.leave()
                await eventually(lambda: running.inflight == 2)
                answers.set()
        assert {other.result().status for other in others} == {200}
        assert fallback.probes == 2
        await eventually(lambda: running.idle)

    async def test_those_that_are_left_out_are_no_attempts(self, serve, gateway):
        primary, wrong = Flaky(serve), False

        def behave(request):
            loading = refusal("503 Service Unavailable", "Loading model")
            return of_another_model(request) if wrong else loading

        bad, good = [Embedder(serve, behave) for _ in range(2)], Embedder(serve)
        endpoints = [
            {"base_url": f"{server.url}/v1", "gpu_group": f"gpu-{n}", "engine": "unknown"}
            for n, server in enumerate((primary, *bad, good))
        ]
        entry = {"id": "m", "endpoints": endpoints, "max_concurrent_requests": 8}
        running = await gateway({"embedding_models": [entry], "forebay": {"limit": "fixed"}})
        assert (await ask(running, texts(1))).status == 200  # at the third attempt at the latest
        assert known(running)["reference"] is not None
        wrong = True
        while states(running).count("different") < 2:
            await ask(running, texts(1))
        primary.mode = "reset"
        for _ in range(12):
            assert (await ask(running, texts(1))).status == 200

    async def test_a_single_one_is_never_asked(self, serve, gateway):
        only = Embedder(serve)
        config = guarded(only.url, only.url)
        del config["embedding_models"][0]["fallback"]
        running = await gateway(config)
        assert (await ask(running, texts(3))).status == 200
        assert len(only.bodies) == 1


class TestOnEmulatedEngines:
    @pytest.fixture
    async def hosts(self):
        """One model on two hosts, and another one on a third."""
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(
                    Emulator(
                        EmulatorSpec(embedding=EmbeddingSpec(dimensions=64, **TIMES), seed=seed)
                    ).running()
                )
                for seed in (0, 0, 1)
            ]

    @pytest.mark.parametrize(("other", "status"), [(1, 200), (2, 502)])
    async def test_only_the_same_model_takes_over(self, hosts, gateway, other, status):
        primary, fallback = hosts[0], hosts[other]
        config = failing_over(primary.embed_url, fallback.embed_url, forebay={"identity": {}})
        running = await gateway(config)
        before = await ask(running, texts(40))
        await referenced(running)
        primary.faults.add(Status(engine=EngineName.EMBEDDING, status=503))
        after = await ask(running, texts(40))
        assert after.status == status
        if status == 200:
            assert after.json["data"] == before.json["data"]
        else:
            assert after.error["code"] == "identity_mismatch"
        await eventually(lambda: running.idle)
