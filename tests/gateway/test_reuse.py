"""Connections to endpoints are used again, and their races with servers that close stay unseen."""

from __future__ import annotations

import anyio
import pytest

from forebay.emulator.faults import CloseKeepalive
from support.configs import emulated, one_chat
from support.http_responses import good_stream, json_response
from support.waiting import eventually
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
BODY = {"model": "chat", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}


async def test_one_connection_serves_many_requests(serve, gateway):
    async def script(peer):
        while await peer.answer(json_response({})):
            pass

    server = serve(script)
    running = await gateway(one_chat(server.url))
    async with connected(running.port) as wire:
        for _ in range(50):
            assert (await wire.ask("POST", CHAT, b'{"model":"m"}')).status == 200
    assert len(server.peers) == 1


@pytest.mark.parametrize("after_ms", [0, 1, 2, 5])
async def test_a_server_that_closes_idle_connections_costs_no_request(host, gateway, after_ms):
    running = await gateway(emulated(host))
    host.faults.add(CloseKeepalive(engine="chat", after_s=after_ms / 1000))
    async with connected(running.port) as wire:
        for number in range(60):
            assert (await wire.ask("POST", CHAT, BODY)).status == 200
            await anyio.sleep(number % 4 * 0.001)
    assert running.counted("forebay_requests_total", outcome="ok") == 60
    assert running.breaker("chat")["failures"] == 0


async def test_a_server_that_lies_about_keeping_streams_connections_costs_none(serve, gateway):
    """llama.cpp's does: it closes after each stream and has not said so."""

    async def script(peer):
        await peer.answer(good_stream("a"))
        peer.close()

    running = await gateway(one_chat(serve(script).url))
    async with connected(running.port) as wire:
        for _ in range(200):
            answer = await wire.ask("POST", CHAT, {"model": "m", "stream": True})
            assert answer.status == 200
            assert b"error" not in answer.body
    assert running.counted("forebay_requests_total", outcome="ok") == 200


async def test_a_silent_retry_takes_no_second_slot_and_is_no_failure(serve, gateway):
    async def script(peer):
        await peer.answer(json_response({}))
        await peer.request()  # the next request on this connection dies
        peer.reset()

    server = serve(script)
    running = await gateway(one_chat(server.url, ceiling=1))
    async with connected(running.port) as wire:
        for _ in range(20):
            assert (await wire.ask("POST", CHAT, b'{"model":"m"}')).status == 200
    assert running.counted("forebay_requests_total") == 20
    assert running.breaker("m")["failures"] == 0


async def test_chat_does_not_share_connections_with_a_storm_of_embeddings(serve, gateway, host):
    """A hundred embeddings that never end leave chat as quick as it was."""

    async def never(peer):
        await peer.request()

    config = emulated(host)
    config["embedding_models"][0] |= {
        "base_url": f"{serve(never).url}/v1",
        "max_concurrent_requests": 150,
        "engine": "unknown",
        "gpu_group": "other",
    }
    running = await gateway(config)

    async def chat_s():
        clock = anyio.current_time
        times = []
        async with connected(running.port) as wire:
            for _ in range(40):
                started = clock()
                assert (await wire.ask("POST", CHAT, BODY)).status == 200
                times.append(clock() - started)
        return sorted(times)[len(times) // 2]

    alone = await chat_s()
    async with anyio.create_task_group() as tasks:

        async def embed():
            async with connected(running.port) as wire:
                await wire.send("POST", "/v1/embeddings", {"model": "embedding", "input": "x"})
                await anyio.sleep_forever()

        for _ in range(150):
            tasks.start_soon(embed)
        await eventually(lambda: running.inflight == 150, within_s=10)
        beside = await chat_s()
        tasks.cancel_scope.cancel()
    assert beside < 2 * alone + 0.01
