"""Clients that do not read, or do not send: they cost little, and nobody else notices."""

from __future__ import annotations

import tracemalloc

import anyio
import pytest

from support.configs import one_chat
from support.endpoint import Endpoint
from support.http_responses import STREAM, chunk, event, json_response, response
from support.waiting import eventually
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
MIB = 1024 * 1024
STALL = {"timeouts": {"between_chunks_s": 0.5}}
LONG_EVENT = chunk(event("x" * 16_000))


async def flood(peer):
    while request := await peer.answer():
        if b"flood" in request:
            break
        await peer.send(json_response({"ok": True}))
    await peer.send(STREAM)
    while True:
        await peer.send(LONG_EVENT)


async def test_one_that_never_reads_loses_its_slot(serve, gateway):
    server = serve(flood)
    running = await gateway(one_chat(server.url, forebay=STALL))
    async with connected(running.port, receive_buffer=4096) as wire:
        await wire.send("POST", CHAT, {"model": "m", "stream": True, "flood": 1})
        await eventually(lambda: running.inflight == 1)
        await eventually(lambda: running.idle, within_s=3)
        await server.left()
        assert running.counted("forebay_requests_total", outcome="cancelled") == 1
        assert running.breaker("m")["failures"] == 0


async def test_one_that_never_reads_takes_bounded_memory_and_holds_up_nobody(serve, gateway):
    running = await gateway(one_chat(serve(flood).url, ceiling=16))
    tracemalloc.start()
    try:
        async with anyio.create_task_group() as tasks:

            async def never_read():
                async with connected(running.port, receive_buffer=4096) as wire:
                    await wire.send("POST", CHAT, {"model": "m", "stream": True, "flood": 1})
                    await anyio.sleep_forever()

            for _ in range(8):
                tasks.start_soon(never_read)
            await eventually(lambda: running.inflight == 8)
            async with connected(running.port) as wire:
                for _ in range(100):
                    with anyio.fail_after(1):
                        answer = await wire.ask("POST", CHAT, b'{"model":"m"}')
                    assert answer.json == {"ok": True}
            assert tracemalloc.get_traced_memory()[1] < 8 * 2 * MIB
            tasks.cancel_scope.cancel()
    finally:
        tracemalloc.stop()
    await eventually(lambda: running.idle)


async def test_one_that_reads_now_and_then_gets_everything(serve, gateway):
    events = [event("x" * 16_000) for _ in range(60)] + [event("", "stop")]

    async def script(peer):
        await peer.answer(STREAM, *map(chunk, events), b"0\r\n\r\n")

    running = await gateway(one_chat(serve(script).url, forebay=STALL))
    async with connected(running.port, receive_buffer=4096) as wire:
        await wire.send("POST", CHAT, {"model": "m", "stream": True})
        await wire.head()
        got = [await wire.piece()]
        for _ in range(3):
            await anyio.sleep(0.3)  # less than a stall, and longer in all
            got += [await wire.piece() for _ in range(10)]
        got += await wire.rest()
    assert b"".join(got) == b"".join(events)
    assert running.counted("forebay_requests_total", outcome="ok") == 1


async def test_a_pause_of_the_client_is_no_stall_of_the_endpoint(serve, gateway):
    """The endpoint is as slow as it may be, after a client that was as slow as it may be."""

    async def script(peer):
        await peer.answer(STREAM)
        for _ in range(40):
            await peer.send(LONG_EVENT)
        await anyio.sleep(0.35)
        await peer.send(chunk(event("", "stop")) + b"0\r\n\r\n")

    running = await gateway(one_chat(serve(script).url, forebay=STALL))
    async with connected(running.port, receive_buffer=4096) as wire:
        await wire.send("POST", CHAT, {"model": "m", "stream": True})
        await wire.head()
        await anyio.sleep(0.35)
        pieces = await wire.rest()
    assert pieces[-1] == event("", "stop")


async def test_a_large_answer_that_nobody_reads_is_given_up(serve, gateway):
    async def script(peer):
        await peer.answer(json_response({"x": "y" * 30 * MIB}))

    server = serve(script)
    running = await gateway(one_chat(server.url, forebay=STALL))
    async with connected(running.port, receive_buffer=4096) as wire:
        await wire.send("POST", CHAT, b'{"model":"m"}')
        await eventually(lambda: running.inflight == 1)
        await eventually(lambda: running.idle, within_s=3)
        await server.left()


async def test_comments_that_nobody_reads_end_too(serve, gateway, monkeypatch):
    monkeypatch.setattr("forebay.proxy.keepalive._COMMENT", b": " + b"x" * 200_000 + b"\n\n")

    async def script(peer):
        await peer.request()

    server = serve(script)
    running = await gateway(one_chat(server.url, forebay={**STALL, "sse_keepalive_s": 0.01}))
    async with connected(running.port, receive_buffer=4096) as wire:
        await wire.send("POST", CHAT, {"model": "m", "stream": True})
        await eventually(lambda: running.inflight == 1)
        await eventually(lambda: running.idle, within_s=4)
        await server.left()


async def test_a_refusal_that_nobody_reads_ends_too(serve, gateway):
    running = await gateway(one_chat(serve(flood).url, forebay=STALL))
    async with connected(running.port, receive_buffer=4096) as wire:
        for _ in range(3000):  # answers pile up until no more of them can be sent
            await wire.send("POST", "/v1/../x", b"")
            if running.server.front.tasks and wire.writer.transport.is_closing():
                break
        await eventually(lambda: not running.server.front.tasks, within_s=5)


async def test_pages_that_nobody_reads_end_too(serve, gateway, monkeypatch):
    running = await gateway(one_chat(serve(flood).url, forebay=STALL))
    monkeypatch.setattr(type(running.deployment), "status", lambda _: {"long": "x" * MIB})
    async with connected(running.port, receive_buffer=4096) as wire:
        wire.writer.write(b"GET /forebay/status HTTP/1.1\r\nHost: x\r\n\r\n" * 16)
        await wire.head()
        await eventually(lambda: not running.server.front.connections, within_s=5)
        await eventually(lambda: not running.server.front.tasks, within_s=1)


async def test_a_refusal_behind_an_answer_that_nobody_reads_ends_too(serve, gateway, monkeypatch):
    running = await gateway(one_chat(serve(flood).url, forebay=STALL))
    monkeypatch.setattr(type(running.deployment), "status", lambda _: {"long": "x" * 10 * MIB})
    async with connected(running.port, receive_buffer=4096) as wire:
        refused = b"POST /v1/./x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
        await wire.write(b"GET /forebay/status HTTP/1.1\r\nHost: x\r\n\r\n" + refused)
        await wire.head()
        await eventually(lambda: not running.server.front.connections, within_s=5)
        await eventually(lambda: not running.server.front.tasks, within_s=1)


async def test_one_that_has_not_read_its_last_answer_yet_cannot_hold_another_slot(serve, gateway):
    endpoint = Endpoint(serve, response(b"x" * 8_000_000))
    running = await gateway(one_chat(endpoint.url, forebay=STALL))
    async with connected(running.port, receive_buffer=4096) as wire:
        await wire.send("POST", CHAT, b'{"model":"m"}')
        await wire.head()
        while running.counted("forebay_requests_total") < 1:  # all of it is on its way
            await wire.reader.read(4096)
        for _ in range(2):
            await wire.send("POST", CHAT, b'{"model":"m"}')
        await eventually(lambda: running.inflight == 1)
        await eventually(lambda: running.idle, within_s=3)
        await endpoint.server.left()
