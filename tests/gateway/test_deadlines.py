"""A request's time: it ends waiting, computing and streaming alike."""

from __future__ import annotations

import time

import anyio
import pytest

from forebay.emulator.faults import Hang
from support.configs import emulated, one_chat
from support.endpoint import Endpoint
from support.http_responses import STREAM, chunk, event, response
from support.waiting import eventually
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
PLAIN, STREAMING = b'{"model":"m"}', b'{"model":"m","stream":true}'
SHORT = ("X-Request-Timeout", "0.3")


async def asked(running, body, *headers):
    async with connected(running.port) as wire:
        return await wire.ask("POST", CHAT, body, headers)


@pytest.mark.parametrize("body", [PLAIN, STREAMING])
async def test_one_that_waits_too_long_is_504(serve, gateway, body):
    running = await gateway(one_chat(Endpoint(serve).url, ceiling=1))
    async with connected(running.port) as ahead:
        await ahead.send("POST", CHAT, PLAIN)
        await eventually(lambda: running.inflight == 1)
        started = time.monotonic()
        answer = await asked(running, body, SHORT)
        assert 0.25 < time.monotonic() - started < 1
    assert (answer.status, answer.error["code"]) == (504, "deadline")
    assert running.queued == 0
    assert running.counted("forebay_rejections_total", reason="deadline") == 1


@pytest.mark.parametrize("body", [PLAIN, STREAMING])
async def test_an_endpoint_that_is_too_slow_for_it_is_504_and_not_charged(serve, gateway, body):
    endpoint = Endpoint(serve)
    running = await gateway(one_chat(endpoint.url))
    for _ in range(5):
        answer = await asked(running, body, SHORT)
        assert (answer.status, answer.error["code"]) == (504, "deadline")
    await endpoint.server.left()
    assert running.idle
    assert running.counted("forebay_requests_total", outcome="cancelled") == 5
    assert running.breaker("m")["failures"] == 0


async def test_the_configured_time_is_charged(serve, gateway):
    endpoint = Endpoint(serve)
    running = await gateway(one_chat(endpoint.url, forebay={"timeouts": {"request_s": 0.3}}))
    assert (await asked(running, PLAIN)).status == 504
    assert running.counted("forebay_requests_total", outcome="timeout") == 1
    assert running.breaker("m")["failures"] == 1


async def test_a_stream_that_runs_out_of_time_ends_with_an_error_event(serve, gateway):
    endpoint = Endpoint(serve, STREAM, chunk(event("one")))
    running = await gateway(one_chat(endpoint.url))
    answer = await asked(running, STREAMING, SHORT)
    assert answer.status == 200
    assert answer.pieces[0] == event("one")
    assert b'"code":"deadline"' in answer.pieces[-1]
    await endpoint.server.left()


async def test_a_plain_answer_that_runs_out_of_time_is_cut(serve, gateway):
    half = response(b"1234567890")[:-5]
    endpoint = Endpoint(serve, half)
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, PLAIN, [SHORT])
        assert (await wire.closed()).endswith(b"\r\n\r\n12345")
    await endpoint.server.left()


async def flowing(peer):
    """A stream that never pauses for long, and never ends."""
    await peer.answer(STREAM)
    while True:
        await peer.send(chunk(event("x")))
        await anyio.sleep(0.02)


async def flowing_plainly(peer):
    """A body that never pauses at all, and never ends."""
    await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\n\r\n")
    while True:
        await peer.send(b"x" * 10_000)


@pytest.mark.parametrize(
    ("script", "body"), [(flowing, STREAMING), (flowing_plainly, PLAIN)], ids=["stream", "plain"]
)
async def test_an_answer_that_flows_when_the_configured_time_is_over_is_not_charged(
    serve, gateway, script, body
):
    server = serve(script)
    running = await gateway(one_chat(server.url, forebay={"timeouts": {"request_s": 0.3}}))
    for _ in range(4):
        async with connected(running.port) as wire:
            await wire.send("POST", CHAT, body)
            with anyio.fail_after(2):
                if body is STREAMING:
                    assert b'"code":"deadline"' in (await wire.answer()).pieces[-1]
                else:
                    await wire.closed()
    await server.left()
    assert running.counted("forebay_requests_total", outcome="cancelled") == 4
    assert running.breaker("m")["failures"] == 0


@pytest.mark.parametrize("body", [PLAIN, STREAMING])
async def test_silence_within_the_configured_time_is_charged(serve, gateway, body):
    half = response(b"1234567890")[:-5] if body is PLAIN else STREAM + chunk(event("one"))
    endpoint = Endpoint(serve, half)
    running = await gateway(one_chat(endpoint.url, forebay={"timeouts": {"between_chunks_s": 0.3}}))
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, body)
        await wire.head()
        await endpoint.server.left()
        await eventually(lambda: running.idle)
    assert running.counted("forebay_requests_total", outcome="timeout") == 1


async def test_a_time_set_by_the_client_may_be_longer_than_the_configured_one(host, gateway):
    running = await gateway(emulated(host, forebay={"timeouts": {"request_s": 0.05}}))
    host.faults.add(Hang(engine="chat", next=1))
    body = {"model": "chat", "messages": [{"role": "user", "content": "x"}], "max_tokens": 200}
    body["ignore_eos"] = True
    async with connected(running.port) as wire:
        assert (await wire.ask("POST", CHAT, body)).status == 504
        assert (await wire.ask("POST", CHAT, body)).status == 504
        answer = await wire.ask("POST", CHAT, body, [("X-Request-Timeout", "20")])
    assert answer.status == 200


@pytest.mark.parametrize("waits", [True, False])
async def test_what_a_stopped_server_cannot_finish_is_503(serve, gateway, waits):
    endpoint = Endpoint(serve)
    running = await gateway(one_chat(endpoint.url, ceiling=1))
    async with connected(running.port) as ahead, connected(running.port) as wire:
        if waits:
            await ahead.send("POST", CHAT, STREAMING)
            await eventually(lambda: running.inflight == 1)
        await wire.send("POST", CHAT, PLAIN)
        await eventually(lambda: running.inflight + running.queued == 1 + waits)
        running.stop_waiting()
        answer = await wire.answer()
    assert (answer.status, answer.error["code"]) == (503, "shutting_down")
    assert int(answer.head["retry-after"]) >= 1
    await eventually(lambda: running.idle)
    await endpoint.server.left()
