"""A primary embedder that goes away and comes back: its fallback serves, and no client can tell."""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack

import anyio
import pytest

from forebay.emulator import EmbeddingSpec, Emulator, EmulatorSpec
from support.flaky import Flaky, failing_over
from support.http_responses import json_response
from support.waiting import eventually
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
STATUS = "/forebay/embedding-endpoint-status"


@pytest.fixture
async def pair(serve):
    """A primary and its fallback."""
    return Flaky(serve), Flaky(serve)


def config(pair, **more):
    primary, fallback = pair
    return failing_over(f"{primary.url}/v1", f"{fallback.url}/v1", **more)


async def ask(running, text="t7", model="m"):
    async with connected(running.port) as wire:
        return await wire.ask("POST", "/v1/embeddings", {"model": model, "input": text}, [JSON])


async def status(running):
    async with connected(running.port) as wire:
        return (await wire.ask("GET", STATUS, None)).json


async def test_the_first_failure_costs_one_attempt_and_the_next_none(pair, gateway):
    primary, fallback = pair
    running = await gateway(config(pair))
    primary.mode = "reset"
    first = await ask(running)
    assert (first.status, first.head["x-forebay-attempts"]) == (200, "2")
    for _ in range(5):
        answer = await ask(running)
        assert (answer.status, answer.head.get("x-forebay-attempts")) == (200, None)
    assert (len(primary.requests), len(fallback.requests)) == (1, 6)


@pytest.mark.parametrize(
    "refusal",
    [
        json_response({"error": "no"}, status="401 Unauthorized"),
        json_response({"error": "no such model"}, status="404 Not Found"),
        json_response({"error": "Loading model"}, status="503 Service Unavailable"),
    ],
    ids=["wrong key", "no such model", "loading"],
)
async def test_where_the_primary_only_refuses_the_fallback_serves_everybody(
    serve, pair, gateway, refusal
):
    async def refuse(peer):
        while await peer.answer(refusal):
            pass

    _, fallback = pair
    running = await gateway(failing_over(f"{serve(refuse).url}/v1", f"{fallback.url}/v1"))
    for _ in range(60):
        assert (await ask(running)).status == 200
    assert running.breaker("m")["failures"] == 0


@pytest.mark.parametrize("primaries", [1, 2])
@pytest.mark.parametrize("path", ["/v1/embeddings", CHAT])
async def test_where_every_primary_is_full_for_ever_the_fallback_serves_everybody(
    serve, pair, gateway, primaries, path
):
    """Beyond what may be tried again: to be refused costs nothing, and the fallback is free."""
    asked = 0

    async def full(peer):
        nonlocal asked
        while await peer.answer(json_response({"error": "busy"}, status="429 Too Many Requests")):
            asked += 1

    _, fallback = pair
    servers = [
        {"base_url": f"{serve(full).url}/v1", "gpu_group": f"gpu-{n}"} for n in range(primaries)
    ]
    model = {"id": "m", "engine": "unknown", "max_concurrent_requests": 2, "endpoints": servers}
    model["fallback"] = {"id": "m", "base_url": f"{fallback.url}/v1", "gpu_group": "spare"}
    kind = "chat_models" if path == CHAT else "embedding_models"
    running = await gateway({kind: [model], "forebay": {"limit": "fixed", "identity": None}})
    body = {"model": "m", "input": "t7"}
    for served in range(1, 101):
        async with connected(running.port) as wire:
            answer = await wire.ask("POST", path, body, [JSON])
        assert (answer.status, len(fallback.requests)) == (200, served)
        assert int(answer.head["x-forebay-attempts"]) <= 1 + primaries
    assert asked < 130, "one refusal for each, but for those that may be tried again"
    assert all(e["breaker"]["trips"] == 0 for e in running.status()["endpoints"].values())


async def test_a_probe_costs_no_client_its_answer_however_much_was_tried_again(pair, gateway):
    primary, _ = pair
    running = await gateway(config(pair))
    primary.mode = "reset"
    assert (await ask(running)).status == 200
    budget = running.deployment.retries._retries.budgets["m"]
    while budget.try_retry():
        pass
    await eventually(lambda: running.endpoint("m")["breaker"]["state"] == "half_open")
    assert (await ask(running)).status == 200
    assert len(primary.requests) == 2


@pytest.mark.parametrize("threshold", [1, 3])
async def test_an_outage_costs_the_threshold_and_one_probe_a_cooldown(pair, gateway, threshold):
    primary, _ = pair
    running = await gateway(config(pair, MODEL_BREAKER_FAIL_THRESHOLD=threshold))
    primary.mode = "reset"
    ends = time.monotonic() + 1.6
    while time.monotonic() < ends:
        started = time.monotonic()
        assert (await ask(running)).status == 200
        assert time.monotonic() - started < 0.3
        await anyio.sleep(0.02)
    # Cooldowns of 0.3, 0.6 and 1.2 s, a tenth more or less: two of them are over.
    assert threshold + 1 <= len(primary.requests) <= threshold + 2
    primary.mode = "ok"
    await eventually(lambda: running.endpoint("m")["breaker"]["state"] == "half_open")
    assert (await ask(running)).status == 200
    assert running.endpoint("m")["breaker"]["state"] == "closed"


async def test_where_it_hangs_only_the_probe_waits(pair, gateway):
    primary, _ = pair
    times = {"first_byte_s": 0.6, "probe_s": 0.2}
    running = await gateway(config(pair, forebay={"timeouts": times}))
    primary.mode = "hang"
    started = time.monotonic()
    assert (await ask(running)).status == 200
    assert 0.6 <= time.monotonic() - started < 1

    await eventually(lambda: running.endpoint("m")["breaker"]["state"] == "half_open")
    async with anyio.create_task_group() as tasks:
        probe_took, others_took = [], []

        async def timed(took):
            started = time.monotonic()
            assert (await ask(running)).status == 200
            took.append(time.monotonic() - started)

        tasks.start_soon(timed, probe_took)
        await eventually(lambda: running.endpoint("m")["breaker"]["probe_in_flight"])
        for _ in range(5):
            await timed(others_took)
    assert max(others_took) < 0.15
    assert 0.15 < probe_took[0] < 0.5
    assert len(primary.requests) == 2


@pytest.mark.parametrize("leaves", [True, False])
async def test_where_it_hangs_the_fallback_takes_over_though_no_client_waits_long(
    pair, gateway, leaves
):
    primary, fallback = pair
    running = await gateway(config(pair, forebay={"timeouts": {"probe_s": 0.5}}))
    primary.mode = "hang"
    statuses = []

    async def impatient():
        while not fallback.requests:
            async with connected(running.port) as wire:
                with anyio.move_on_after(0.2 if leaves else 5):
                    headers = [JSON] if leaves else [JSON, ("x-request-timeout", "0.2")]
                    body = {"model": "m", "input": "t7"}
                    answer = await wire.ask("POST", "/v1/embeddings", body, headers)
                    statuses.append(answer.status)

    with anyio.fail_after(3):
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                await anyio.sleep(0.05)
                tasks.start_soon(impatient)
    assert 200 in statuses
    assert running.counted("forebay_failovers_total", model="m") == 1
    await eventually(lambda: running.idle)


async def test_who_comes_before_the_breaker_opens_is_served_like_who_was_there(pair, gateway):
    primary, _ = pair
    running = await gateway(config(pair, MODEL_BREAKER_FAIL_THRESHOLD=3))
    primary.mode = "hang"
    statuses = []

    async def client():
        statuses.append((await ask(running)).status)

    async with anyio.create_task_group() as tasks:
        for _ in range(16):
            tasks.start_soon(client)
        await eventually(lambda: len(primary.requests) == 8 and running.queued == 8)
        primary.mode = "reset"
        primary.lets_go.set()
    assert statuses == [200] * 16
    assert len(primary.requests) == 10  # of the eight that waited, two came before it opened


async def test_it_comes_back_although_nobody_asked_for_a_long_time(pair, gateway):
    primary, fallback = pair
    running = await gateway(config(pair))
    primary.mode = "reset"
    await ask(running)
    primary.mode = "ok"
    await eventually(lambda: running.endpoint("m")["breaker"]["state"] == "half_open")
    for _ in range(3):
        answer = await ask(running)
        assert primary.url.removeprefix("http://") in answer.head["x-forebay-endpoint"]
    assert len(fallback.requests) == 1


async def test_what_happened_can_be_read_and_reading_changes_nothing(pair, gateway, caplog):
    primary, fallback = pair
    caplog.set_level(logging.INFO)
    running = await gateway(config(pair))
    before = await status(running)
    assert before["active_model_key"] == "embedding"
    assert (before["is_fallback"], before["fallback_configured"]) == (False, True)
    assert before["active_base_url"] == f"{primary.url}/v1"

    primary.mode = "reset"
    for _ in range(3):
        await ask(running)
    for _ in range(3):
        now = await status(running)
        assert now["active_model_key"] == "embedding:fallback"
        assert now["active_base_url"] == f"{fallback.url}/v1"
        assert (now["active_gpu_group"], now["is_fallback"]) == ("shared", True)
        assert now["primary_breaker"]["state"] == "open"
        assert (now["failover_count"], now["recovery_count"]) == (1, 0)

    # A probe that fails is no second failover.
    await eventually(lambda: running.endpoint("m")["breaker"]["state"] == "half_open")
    assert (await status(running))["is_fallback"] is True
    await ask(running)
    assert (await status(running))["failover_count"] == 1

    primary.mode = "ok"
    await eventually(lambda: running.endpoint("m")["breaker"]["state"] == "half_open")
    await ask(running)
    for _ in range(3):
        after = await status(running)
        assert (after["active_base_url"], after["is_fallback"]) == (f"{primary.url}/v1", False)
        assert (after["failover_count"], after["recovery_count"]) == (1, 1)
    told = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert [level for level, text in told if text.startswith("failover model=m")] == ["WARNING"]
    assert [level for level, text in told if text.startswith("recovery model=m")] == ["INFO"]
    assert running.counted("forebay_failovers_total", model="m") == 1
    assert running.counted("forebay_recoveries_total", model="m") == 1


async def test_a_fallback_of_another_name_is_asked_by_it(pair, gateway):
    primary, fallback = pair
    running = await gateway(config(pair, fallback_model="other/m"))
    primary.mode = "reset"
    answer = await ask(running)
    assert answer.status == 200
    assert answer.json["data"][0]["embedding"] == [7.0, -0.5]
    assert primary.requests[0] == {"model": "m", "input": "t7"}
    assert fallback.requests[0] == {"model": "other/m", "input": "t7"}


async def test_a_fallback_that_fails_too_answers_for_both(pair, gateway):
    running = await gateway(config(pair))
    for each in pair:
        each.mode = "reset"
    assert (await ask(running)).status == 502
    with anyio.fail_after(0.3):
        answer = await ask(running)
    assert answer.status == 503
    assert int(answer.head["retry-after"]) >= 1


QUICK = EmulatorSpec(
    embedding=EmbeddingSpec(weights_s=0.004, token_s=2e-6, overhead_s=0.003, dimensions=8)
)


@pytest.mark.parametrize("threshold", [1, 3])
async def test_no_client_notices_that_the_primary_was_killed(gateway, threshold):
    async with Emulator(QUICK).running() as shared, AsyncExitStack() as alive:
        primary = await alive.enter_async_context(Emulator(QUICK).running())
        running = await gateway(
            failing_over(
                primary.embed_url,
                shared.embed_url,
                model="embedding",
                fallback_model="embedding",
                chat_url=shared.chat_url,
                MODEL_BREAKER_FAIL_THRESHOLD=threshold,
                MODEL_BREAKER_BASE_COOLDOWN_S=60,
                MODEL_BREAKER_MAX_COOLDOWN_S=60,
            )
        )
        statuses, slowest_s, ended = [], 0.0, False

        async def client():
            nonlocal slowest_s
            async with connected(running.port) as wire:
                while not ended:
                    started = time.monotonic()
                    body = {"model": "embedding", "input": "hello"}
                    statuses.append((await wire.ask("POST", "/v1/embeddings", body, [JSON])).status)
                    slowest_s = max(slowest_s, time.monotonic() - started)

        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(client)
            await eventually(lambda: len(statuses) > 100)
            await alive.aclose()
            served = len(statuses)
            await eventually(lambda: len(statuses) > served + 200, 20)
            ended = True
        assert set(statuses) == {200}
        assert slowest_s < 2
        record = shared.record()
        assert 0 < record["embedding"]["max_inflight"] <= 4  # beside chat's floor of two
        assert running.counted("forebay_failovers_total", model="embedding") == 1
        retries = running.counted("forebay_retries_total", model="embedding")
        assert retries <= 8 + threshold - 1  # those in flight, and in the places of the first
