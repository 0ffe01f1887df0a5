"""A host that is cut off: no port is closed, no connection reset, its packets are just gone."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import anyio
import pytest

from forebay.emulator import ChatSpec, EmbeddingSpec, EmulatorSpec
from support.flaky import failing_over
from support.waiting import seen

pytestmark = pytest.mark.anyio

QUICK = EmulatorSpec(
    embedding=EmbeddingSpec(weights_s=0.004, token_s=2e-6, overhead_s=0.003, dimensions=8)
)
# One step takes 0.6 s: whenever it is cut off, requests are in flight there.
SLOW = EmulatorSpec(embedding=EmbeddingSpec(overhead_s=0.6, dimensions=8))


def config(primary, shared, *, timeouts: dict[str, float], **more: Any) -> dict[str, Any]:
    return failing_over(
        primary.embed_url,
        shared.embed_url,
        model="embedding",
        fallback_model="embedding",
        chat_url=shared.chat_url,
        forebay={"timeouts": timeouts, "breaker": {"ramp_double_s": 0.3}},
        **more,
    )


async def timed(times: list[float], ask, *args) -> Any:
    started = time.monotonic()
    answer = await ask(*args)
    times.append(time.monotonic() - started)
    return answer


async def served_by(site, gateway) -> str:
    answer = await site.embed(gateway)
    assert answer.status == 200
    return answer.headers["x-forebay-endpoint"]


async def embedding(host, count: int) -> None:
    """Return once so many requests for embeddings are in flight there, by its own count."""
    await seen(host.record, lambda record: record["embedding"]["inflight"] >= count)


async def test_what_runs_there_and_what_comes_is_served_at_the_fallback(site) -> None:
    primary, shared = site.host("primary", SLOW), site.host("shared", QUICK)
    times = {"connect_s": 0.5, "first_byte_s": 1}
    gateway = site.gateway(config(primary, shared, timeouts=times))
    assert (await site.embed(gateway)).status == 200  # its connection is kept, and goes stale
    in_flight_s: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(timed(in_flight_s, site.embed, gateway)) for _ in range(8)]
        await embedding(primary, 8)
        site.network.cut(primary.host)
        running += [tasks.create_task(timed(in_flight_s, site.embed, gateway)) for _ in range(8)]
    answers = [task.result() for task in running]
    assert [answer.status for answer in answers] == [200] * 16
    assert all(shared.host.address in a.headers["x-forebay-endpoint"] for a in answers)
    assert max(in_flight_s) < 1.6

    new_s: list[float] = []
    for _ in range(5):
        assert (await timed(new_s, site.embed, gateway)).status == 200
    status = await site.look(gateway, "embedding-endpoint-status")
    assert status["active_model_key"] == "embedding:fallback"
    assert (status["failover_count"], status["recovery_count"]) == (1, 0)
    assert (await shared.record())["gpu"]["max_inflight"] <= 4  # beside chat's floor of two


async def test_each_cooldown_costs_one_request_one_connect_and_then_it_comes_back(site) -> None:
    primary, shared = site.host("primary", QUICK), site.host("shared", QUICK)
    times = {"connect_s": 0.3, "first_byte_s": 0.5}
    gateway = site.gateway(
        config(primary, shared, timeouts=times, MODEL_BREAKER_MAX_COOLDOWN_S=0.6)
    )
    assert (await site.embed(gateway)).status == 200
    site.network.cut(primary.host)
    took_s: list[float] = []
    ends = time.monotonic() + 2.5
    while time.monotonic() < ends:
        assert (await timed(took_s, site.embed, gateway)).status == 200
        await anyio.sleep(0.01)
    # The first one, and a probe after each cooldown of 0.3 to 0.6 s.
    slow_s = [s for s in took_s if s > 0.25]
    assert 3 <= len(slow_s) <= 6
    assert max(slow_s) < 0.8
    status = await site.look(gateway, "embedding-endpoint-status")
    assert (status["failover_count"], status["recovery_count"]) == (1, 0)

    site.network.mend(primary.host)
    mended_at = time.monotonic()
    await seen(lambda: served_by(site, gateway), lambda endpoint: primary.host.address in endpoint)
    # At worst a probe had just begun: its time, a cooldown, and the ramp of two doublings.
    assert time.monotonic() - mended_at < 0.5 + 0.66 + 0.6
    status = await site.look(gateway, "embedding-endpoint-status")
    assert status["is_fallback"] is False
    assert (status["failover_count"], status["recovery_count"]) == (1, 1)


async def test_a_host_that_vanished_is_noticed_although_answers_may_take_long(site) -> None:
    """Nothing is ever sent to who waits for an answer: TCP has to ask whether it is there."""
    primary, shared = site.host("primary", SLOW), site.host("shared", QUICK)
    gateway = site.gateway(config(primary, shared, timeouts={"connect_s": 1, "unreachable_s": 1}))
    took_s: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        request = tasks.create_task(timed(took_s, site.embed, gateway))
        await embedding(primary, 1)
        site.network.cut(primary.host)
    assert request.result().status == 200
    assert took_s[0] < 4


async def test_it_is_noticed_too_when_it_acknowledges_no_request(site) -> None:
    primary, shared = site.host("primary", QUICK), site.host("shared", QUICK)
    gateway = site.gateway(config(primary, shared, timeouts={"unreachable_s": 1}))
    assert (await site.embed(gateway)).status == 200
    site.network.cut(primary.host)
    took_s: list[float] = []
    assert (await timed(took_s, site.embed, gateway)).status == 200
    assert took_s[0] < 4


async def test_who_is_there_may_take_as_long_as_it_likes(site) -> None:
    busy = EmulatorSpec(embedding=EmbeddingSpec(overhead_s=3.5, dimensions=8))
    primary, shared = site.host("primary", busy), site.host("shared", QUICK)
    gateway = site.gateway(config(primary, shared, timeouts={"unreachable_s": 1}))
    answer = await site.embed(gateway)
    assert answer.status == 200
    assert primary.host.address in answer.headers["x-forebay-endpoint"]
    assert "x-forebay-attempts" not in answer.headers


async def test_a_stream_that_is_cut_off_ends_with_an_error(site) -> None:
    steady = EmulatorSpec(chat=ChatSpec(overhead_s=0.05))
    primary, shared = site.host("primary", QUICK), site.host("shared", steady)
    gateway = site.gateway(config(primary, shared, timeouts={"unreachable_s": 1}))
    body = {"model": "chat", "messages": [{"role": "user", "content": "tell me"}], "stream": True}
    async with site.http.post(f"{gateway.base_url}/chat/completions", json=body) as answer:
        assert answer.status == 200
        await answer.content.readuntil(b"\n\n")
        site.network.cut(shared.host)
        with anyio.fail_after(5):
            rest = await answer.content.read()
    assert b'data: {"error":' in rest
    assert b"[DONE]" not in rest
