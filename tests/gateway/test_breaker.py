"""Endpoints that are away: requests fail quickly meanwhile, and it comes back by itself."""

from __future__ import annotations

import time
from dataclasses import replace

import anyio
import pytest

from forebay.adapters.upstream import Upstream, UpstreamSettings
from forebay.emulator.faults import Hang, Loading, Reset, Status
from support.configs import emulated, one_chat
from support.endpoint import Endpoint
from support.exhaustion import no_descriptor_left
from support.http_responses import json_response
from support.waiting import eventually
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
BODY = {"model": "chat", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
FAST = {
    "MODEL_BREAKER_FAIL_THRESHOLD": 2,
    "MODEL_BREAKER_BASE_COOLDOWN_S": 0.3,
    "MODEL_BREAKER_MAX_COOLDOWN_S": 2,
}


async def asked(running, body=None, headers=()):
    async with connected(running.port) as wire:
        return await wire.ask("POST", CHAT, body or BODY, headers)


async def test_it_opens_refuses_quickly_probes_and_closes(host, gateway):
    running = await gateway(emulated(host, **FAST))
    assert running.endpoint("chat")["ramp"] is None
    host.faults.add(Reset(engine="chat"))
    assert [(await asked(running)).status for _ in range(2)] == [502, 502]
    assert running.breaker("chat")["state"] == "open"

    before = host.record()["chat"]["requests"]
    for _ in range(10):
        started = time.monotonic()
        answer = await asked(running)
        assert time.monotonic() - started < 0.2
        assert answer.status == 503
        assert int(answer.head["retry-after"]) >= 1
    assert host.record()["chat"]["requests"] == before

    host.faults.clear()
    await eventually(lambda: running.breaker("chat")["state"] == "half_open")
    assert (await asked(running)).status == 200  # the probe, and an ordinary request too
    assert running.breaker("chat")["state"] == "closed"
    chat = running.endpoint("chat")
    assert chat["ramp"]["cap"] == chat["limit"] == 1
    assert chat["limit_reason"] == "ramp: after outage"
    assert chat["ramp"]["fraction"] == 0.125
    assert 80 < chat["ramp"]["ends_in_s"] <= 90, "three times 30 s from 1 to 8"
    assert (await asked(running)).status == 200


async def test_the_status_of_a_ramp_needs_no_requests_to_be_true(host, gateway):
    ramp = {"breaker": {"ramp_double_s": 0.1}}
    running = await gateway(emulated(host, forebay=ramp, **FAST))
    host.faults.add(Reset(engine="chat", next=2))
    for _ in range(2):
        await asked(running)
    await eventually(lambda: running.breaker("chat")["state"] == "half_open")
    assert running.status()["models"]["chat"]["capacity"] == 0
    assert (await asked(running)).status == 200
    caps = {running.endpoint("chat")["ramp"]["cap"]}
    while (chat := running.endpoint("chat"))["ramp"] is not None:
        caps.add(chat["ramp"]["cap"])
        assert chat["limit"] == chat["ramp"]["cap"]
        await anyio.sleep(0.01)
    assert {1, 2, 4} <= caps
    assert (chat["limit"], running.status()["models"]["chat"]["capacity"]) == (8, 8)


async def test_a_failed_probe_makes_the_next_pause_longer(host, gateway):
    running = await gateway(emulated(host, **FAST))
    host.faults.add(Reset(engine="chat"))
    for _ in range(2):
        await asked(running)
    first = running.breaker("chat")["cooldown_remaining_s"]
    await eventually(lambda: running.breaker("chat")["state"] == "half_open")
    assert (await asked(running)).status == 502
    assert running.breaker("chat")["cooldown_remaining_s"] > first
    assert (await asked(running)).status == 503


async def test_a_probe_that_hangs_ends_in_its_time_and_holds_up_nobody(host, gateway):
    running = await gateway(emulated(host, forebay={"timeouts": {"probe_s": 0.5}}, **FAST))
    host.faults.add(Reset(engine="chat", next=2))
    for _ in range(2):
        await asked(running)
    host.faults.add(Hang(engine="chat", next=1))
    await eventually(lambda: running.breaker("chat")["state"] == "half_open")
    async with connected(running.port) as probe:
        await probe.send("POST", CHAT, BODY)
        await eventually(lambda: running.breaker("chat")["probe_in_flight"])
        for _ in range(5):
            with anyio.fail_after(0.2):
                assert (await asked(running)).status == 503
        with anyio.fail_after(2):
            assert (await probe.answer()).status == 504
    assert running.breaker("chat")["state"] == "open"


async def test_waiting_requests_are_refused_when_it_opens(host, gateway):
    running = await gateway(emulated(host, chat=1, **{**FAST, "MODEL_BREAKER_FAIL_THRESHOLD": 1}))
    host.faults.add(Hang(engine="chat", next=1))
    statuses = []

    async def client():
        statuses.append((await asked(running)).status)

    async with connected(running.port) as ahead, anyio.create_task_group() as tasks:
        await ahead.send("POST", CHAT, BODY)
        await eventually(lambda: host.record()["chat"]["inflight"] == 1)
        for _ in range(5):
            tasks.start_soon(client)
        await eventually(lambda: running.queued == 5)
        host.faults.add(Reset(engine="chat", next=1))
        ahead.leave()  # the next one in the queue meets the reset
    assert sorted(statuses) == [502, 503, 503, 503, 503]


async def test_a_hundred_wrong_requests_leave_it_closed(host, gateway):
    running = await gateway(emulated(host, **FAST))
    for number in range(100):
        wrong = {**BODY, "max_tokens": 10**9} if number % 2 else {"model": "chat", "messages": []}
        assert (await asked(running, wrong)).status == 400
    breaker = running.breaker("chat")
    assert (breaker["state"], breaker["failures"]) == ("closed", 0)
    assert running.endpoint("chat")["limit"] == 8


@pytest.mark.parametrize(
    "fault",
    [
        Status(engine="chat", status=429, message="too many requests"),
        Status(engine="chat", status=503, message="queue is full"),
        Loading(engine="chat"),
    ],
)
async def test_busy_and_loading_leave_it_closed(host, gateway, fault):
    running = await gateway(emulated(host, forebay={"scrape_interval_s": 60}, **FAST))
    host.faults.add(fault)
    statuses = set()
    with anyio.move_on_after(1):
        for _ in range(8):
            statuses.add((await asked(running)).status)
    assert statuses <= {429, 503}
    assert running.breaker("chat")["state"] == "closed"
    assert running.breaker("chat")["failures"] == 0


async def test_five_hundreds_open_it(host, gateway):
    running = await gateway(emulated(host, **FAST))
    host.faults.add(Status(engine="chat", status=500, message="CUDA error"))
    for _ in range(2):
        answer = await asked(running)
        assert answer.status == 500
        assert "CUDA error" in answer.json["error"]["message"]
    assert running.breaker("chat")["state"] == "open"


async def test_it_recovers_although_nobody_asked_for_a_long_time(host, gateway):
    running = await gateway(emulated(host, **FAST))
    host.faults.add(Reset(engine="chat", next=2))
    for _ in range(2):
        await asked(running)
    await eventually(lambda: running.breaker("chat")["state"] == "half_open")
    assert (await asked(running)).status == 200


async def test_no_connection_left_on_this_side_is_not_the_endpoints_fault(serve, gateway):
    endpoint = Endpoint(serve)
    running = await gateway(one_chat(endpoint.url, **FAST))
    deployment = running.deployment
    (name,) = deployment.targets
    few = Upstream(endpoint.url, UpstreamSettings(max_connections=1))
    deployment.targets[name] = replace(deployment.targets[name], upstream=few)
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, b'{"model":"m"}')
        await eventually(lambda: few.stats().open == 1)
        for _ in range(10):
            answer = await asked(running, b'{"model":"m"}')
            assert (answer.status, answer.error["code"]) == (503, "gateway_saturated")
            assert int(answer.head["retry-after"]) >= 1
    await eventually(lambda: running.idle)
    assert running.breaker("m")["failures"] == 0
    assert running.endpoint("m")["limit"] == 8
    assert running.counted("forebay_rejections_total", reason="gateway_saturated") == 10
    await few.aclose()


async def test_no_descriptor_left_on_this_side_is_not_the_endpoints_fault(serve, gateway):
    running = await gateway(one_chat(Endpoint(serve, json_response({"ok": True})).url, **FAST))
    async with connected(running.port) as wire:
        assert (await wire.ask("GET", "/v1/models")).status == 200
        with no_descriptor_left():
            for _ in range(5):
                answer = await wire.ask("POST", CHAT, b'{"model":"m"}')
                assert (answer.status, answer.error["code"]) == (503, "gateway_saturated")
                assert int(answer.head["retry-after"]) >= 1
        assert running.breaker("m")["failures"] == 0
        assert (await wire.ask("POST", CHAT, b'{"model":"m"}')).json == {"ok": True}


async def test_asking_for_a_stream_where_there_is_none_cannot_open_it(serve, gateway):
    async def script(peer):
        while await peer.request():
            await anyio.sleep(0.05)
            await peer.send(json_response({"data": [1]}))

    config = one_chat(serve(script).url, forebay={"sse_keepalive_s": 0.01}, **FAST)
    running = await gateway(config)
    for _ in range(4):
        async with connected(running.port) as wire:
            answer = await wire.ask("POST", "/v1/rerank", b'{"model":"m","stream":true}')
        assert b"does not stream /v1/rerank" in answer.pieces[-1]
    assert running.breaker("m")["failures"] == 0
    assert running.counted("forebay_requests_total", outcome="client_error") == 4


async def test_an_error_in_place_of_a_stream_opens_it(serve, gateway):
    async def script(peer):
        while await peer.request():
            await anyio.sleep(0.05)
            await peer.send(json_response({"error": {"message": "CUDA error", "code": 500}}))

    config = one_chat(serve(script).url, forebay={"sse_keepalive_s": 0.01}, **FAST)
    running = await gateway(config)
    for _ in range(2):
        assert b"CUDA error" in (await asked(running, b'{"model":"m","stream":true}')).pieces[-1]
    assert running.breaker("m")["state"] == "open"


async def test_a_wrong_key_for_an_endpoint_is_no_outage(serve, gateway):
    denied = json_response({"error": {"message": "no"}}, status="401 Unauthorized")
    running = await gateway(one_chat(Endpoint(serve, denied).url, **FAST))
    for _ in range(10):
        assert (await asked(running, b'{"model":"m"}')).status == 401
    assert running.breaker("m")["state"] == "closed"
    assert running.counted("forebay_requests_total", outcome="configuration") == 10
