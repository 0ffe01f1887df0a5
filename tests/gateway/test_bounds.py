"""What one connection can make the gateway hold is bounded, and let go of with it."""

from __future__ import annotations

import gc
import tracemalloc

import anyio
import pytest

from forebay.gateway.connection import ClientConnection
from support.configs import one_chat
from support.endpoint import Endpoint
from support.http_responses import STREAM, chunk, event, json_response
from support.waiting import eventually
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m"}'
MIB = 1024 * 1024


def post(body, path=b"/v1/chat/completions"):
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (path, len(body), body)


def bodies_held(running):
    return sum(c._turns.ahead_bytes for c in running.server.front.connections)


def bytes_read(running):
    return sum(len(c._incoming.body) for c in running.server.front.connections if c._incoming)


async def test_bodies_that_are_sent_ahead(serve, gateway):
    endpoint = Endpoint(serve, json_response({"ok": True}))
    running = await gateway(one_chat(endpoint.url))
    request = post(b'{"model":"m","x":"%b"}' % (b"y" * 20_000))
    most = 0
    async with connected(running.port) as wire, anyio.create_task_group() as tasks:

        async def send():
            for _ in range(40):
                await wire.write(request * 10)

        tasks.start_soon(send)
        for _ in range(400):
            assert (await wire.answer()).json == {"ok": True}
            most = max(most, bodies_held(running))
    assert most < MIB


async def test_a_body_in_tiny_chunks_takes_what_it_is(serve, gateway):
    running = await gateway(one_chat(Endpoint(serve).url))
    chunks = b"2\r\nab\r\n" * 10_000
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, None, [("Transfer-Encoding", "chunked")])
        tracemalloc.start()
        try:
            for _ in range(50):
                await wire.write(chunks)
            await eventually(lambda: bytes_read(running) == 1_000_000, within_s=5)
            assert tracemalloc.get_traced_memory()[0] < 3 * MIB
        finally:
            tracemalloc.stop()


async def test_a_stream_of_large_events_is_not_kept(serve, gateway):
    async def script(peer):
        await peer.answer(STREAM)
        for _ in range(60):
            await peer.send(chunk(event("x" * 200_000)))
        await peer.send(chunk(event("", "stop")))
        await done.wait()

    done = anyio.Event()
    running = await gateway(one_chat(serve(script).url))
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, {"model": "m", "stream": True})
        await wire.head()
        tracemalloc.start()
        try:
            while b"stop" not in await wire.piece():
                pass
            assert tracemalloc.get_traced_memory()[0] < 3 * MIB
        finally:
            tracemalloc.stop()
            done.set()


async def test_a_connection_is_freed_without_the_garbage_collector(serve, gateway):
    endpoint = Endpoint(serve, json_response({"ok": True}))
    running = await gateway(one_chat(endpoint.url))
    gc.collect()
    gc.disable()
    try:
        async with connected(running.port) as wire:
            assert (await wire.ask("POST", CHAT, BODY)).json == {"ok": True}
            assert (await wire.ask("GET", "/healthz", None)).status == 200
        async with connected(running.port) as wire:  # it leaves in the middle of a body
            await wire.write(post(b"x" * 2 * MIB)[:-10])
            await eventually(lambda: any(c._incoming for c in running.server.front.connections))
        await eventually(lambda: not running.server.front.connections)
        await eventually(lambda: not any(isinstance(o, ClientConnection) for o in gc.get_objects()))
    finally:
        gc.enable()


async def test_the_body_of_a_failed_request_is_freed_without_the_garbage_collector(serve, gateway):
    async def script(peer):
        await peer.request()
        peer.reset()

    running = await gateway(one_chat(serve(script).url))
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        async with connected(running.port) as wire:
            for _ in range(2):
                body = b'{"model":"m","x":"%b"}' % (b"y" * 5 * MIB)
                assert (await wire.ask("POST", CHAT, body)).status == 502
            del body
        await eventually(lambda: not running.server.front.connections)
        assert tracemalloc.get_traced_memory()[0] < 4 * MIB
    finally:
        tracemalloc.stop()
        gc.enable()


class TestRefusals:
    @pytest.mark.parametrize("behind", [b"\0\0garbage\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n\r\n"])
    async def test_one_with_nonsense_behind_it_is_heard(self, serve, gateway, behind):
        running = await gateway(one_chat(Endpoint(serve).url))
        async with connected(running.port) as wire:
            await wire.write(post(BODY, b"/v1/./x") + behind)
            answer = await wire.answer()
            assert (answer.status, answer.error["code"]) == (400, "invalid_path")
            assert await wire.closed() == b""

    async def test_a_body_longer_than_it_says_is_told(self, serve, gateway):
        async def script(peer):
            await peer.request()

        running = await gateway(one_chat(serve(script).url))
        async with connected(running.port) as wire:
            await wire.write(post(BODY) + b', "and": "more"}')
            answer = await wire.answer()
            assert (answer.status, answer.error["code"]) == (400, "invalid_http")
            assert await wire.closed() == b""
        await eventually(lambda: running.idle)

    async def test_nonsense_behind_an_answer_that_is_not_read_ends(
        self, serve, gateway, monkeypatch
    ):
        monkeypatch.setattr("forebay.gateway.connection._PATIENCE_S", 0.2)
        running = await gateway(one_chat(Endpoint(serve).url))
        monkeypatch.setattr(type(running.deployment), "status", lambda _: {"long": "x" * 9 * MIB})
        async with connected(running.port, receive_buffer=4096) as wire:
            await wire.write(b"GET /forebay/status HTTP/1.1\r\nHost: x\r\n\r\n")
            await wire.head()
            await wire.write(b"\0\0garbage\r\n\r\n")
            await eventually(lambda: not running.server.front.connections, within_s=5)


class TestExpectations:
    async def test_a_client_behind_another_request_is_told_to_go_on(self, serve, gateway):
        endpoint = Endpoint(serve, json_response({"ok": True}))
        running = await gateway(one_chat(endpoint.url))
        async with connected(running.port) as wire:
            await wire.send("POST", CHAT, BODY)
            expects = [("Expect", "100-continue"), ("Content-Length", str(len(BODY)))]
            await wire.send("POST", CHAT, None, expects)
            assert (await wire.answer()).json == {"ok": True}
            assert (await wire.head()).status == 100
            await wire.write(BODY)
            assert (await wire.answer()).json == {"ok": True}

    async def test_http_1_0_has_none(self, serve, gateway):
        endpoint = Endpoint(serve, json_response({"ok": True}))
        running = await gateway(one_chat(endpoint.url))
        async with connected(running.port) as wire:
            head = post(BODY).replace(b"HTTP/1.1\r\n", b"HTTP/1.0\r\nExpect: 100-continue\r\n")
            await wire.write(head)
            assert (await wire.answer()).json == {"ok": True}


async def test_a_client_that_is_behind_holds_its_slot_no_longer_than_its_deadline(serve, gateway):
    async def script(peer):
        await peer.answer(STREAM)
        while True:
            await peer.send(chunk(event("x" * 60_000)))

    running = await gateway(one_chat(serve(script).url))
    async with connected(running.port, receive_buffer=4096) as wire:
        body = {"model": "m", "stream": True}
        await wire.send("POST", CHAT, body, [("x-request-timeout", "0.5")])
        await eventually(lambda: running.inflight == 1)
        await eventually(lambda: running.idle, within_s=3)
    assert running.breaker("m")["failures"] == 0
