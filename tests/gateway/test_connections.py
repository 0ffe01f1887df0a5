"""Client connections: HTTP that is none, pipelining, keep-alive, and connections that just stay."""

from __future__ import annotations

import json
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest

from support.configs import one_chat
from support.endpoint import Endpoint
from support.http_responses import STREAM, chunk, event, json_response
from support.waiting import eventually
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m"}'


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nA b: c\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nA: b\x00c\r\n\r\n",
        b"GET /heal thz HTTP/1.1\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /v1/x HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_400_in_openais_shape(serve, gateway, request_bytes):
    endpoint = Endpoint(serve, json_response({}))
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        await wire.write(request_bytes)
        with anyio.fail_after(2):
            answer = await wire.answer()
            assert answer.status in {400, 405}
            assert answer.error["type"] == "invalid_request_error"
            if answer.head.get("connection") == "close":
                assert await wire.closed() == b""
    assert endpoint.requests == []


async def test_a_head_without_end_is_refused(serve, gateway):
    running = await gateway(one_chat(Endpoint(serve).url))
    async with connected(running.port) as wire:
        await wire.write(b"GET /healthz HTTP/1.1\r\n")
        with suppress(ConnectionError):
            for number in range(2000):
                await wire.write(b"X-%d: %b\r\n" % (number, b"y" * 1000))
                await anyio.lowlevel.checkpoint()
            pytest.fail("two megabytes of headers were taken")


class TestPipelining:
    async def test_answers_come_in_order_and_from_one_slot_at_a_time(self, serve, gateway):
        async def script(peer):
            while request := await peer.request():
                number = json.loads(request.partition(b"\r\n\r\n")[2])["number"]
                await peer.send(json_response({"number": number}))

        running = await gateway(one_chat(serve(script).url))
        async with connected(running.port) as wire:
            for number in range(40):
                await wire.send("POST", CHAT, {"model": "m", "number": number})
            for number in range(40):
                assert (await wire.answer()).json == {"number": number}

    async def test_all_in_one_segment(self, serve, gateway):
        endpoint = Endpoint(serve, json_response({"ok": True}))
        running = await gateway(one_chat(endpoint.url))
        one = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (
            CHAT.encode(),
            len(BODY),
            BODY,
        )
        async with connected(running.port) as wire:
            await wire.write(one * 20)
            for _ in range(20):
                assert (await wire.answer()).json == {"ok": True}

    async def test_large_bodies_one_behind_the_other(self, serve, gateway):
        endpoint = Endpoint(serve, json_response({"ok": True}))
        running = await gateway(one_chat(endpoint.url))
        body = {"model": "m", "x": "y" * 300_000}
        async with connected(running.port) as wire, anyio.create_task_group() as tasks:

            async def send():
                for _ in range(5):
                    await wire.send("POST", CHAT, body)

            tasks.start_soon(send)
            for _ in range(5):
                assert (await wire.answer()).json == {"ok": True}

    async def test_nonsense_behind_a_request_never_gets_into_its_answer(self, serve, gateway):
        async def script(peer):
            await peer.answer(STREAM, chunk(event("one")))
            await go.wait()
            await peer.send(chunk(event("", "stop")) + b"0\r\n\r\n")

        go = anyio.Event()
        server = serve(script)
        running = await gateway(one_chat(server.url))
        async with connected(running.port) as wire:
            await wire.send("POST", CHAT, {"model": "m", "stream": True})
            await wire.head()
            assert await wire.piece() == event("one")
            await wire.write(b"nonsense\r\n\r\n")
            rest = await wire.closed()
            assert b"400" not in rest
            await eventually(lambda: running.idle, within_s=1)
            go.set()
            await server.left()


async def test_a_connection_is_kept_for_the_next_request(serve, gateway):
    endpoint = Endpoint(serve, json_response({"ok": True}))
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        for _ in range(5):
            assert (await wire.ask("POST", CHAT, BODY)).json == {"ok": True}
            assert (await wire.ask("POST", CHAT, b'{"model":"no"}')).status == 404
            assert (await wire.ask("GET", "/healthz", None)).status == 200


async def test_a_connection_is_closed_when_the_client_wants_it(serve, gateway):
    endpoint = Endpoint(serve, json_response({"ok": True}))
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        answer = await wire.ask("POST", CHAT, BODY, [("Connection", "close")])
        assert answer.head["connection"] == "close"
        assert await wire.closed() == b""
    async with connected(running.port) as wire:
        await wire.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b"200 OK" in await wire.closed()


async def test_an_offer_to_speak_http_2_is_declined_politely(serve, gateway):
    """Java's client makes it with its first request."""
    endpoint = Endpoint(serve, json_response({"ok": True}))
    running = await gateway(one_chat(endpoint.url))
    offer = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAEAAEAA"),
    ]
    async with connected(running.port) as wire:
        assert (await wire.ask("POST", CHAT, BODY, offer)).json == {"ok": True}
        assert (await wire.ask("POST", CHAT, BODY)).json == {"ok": True}
    assert "upgrade" not in dict(endpoint.headers)
    assert "http2-settings" not in dict(endpoint.headers)
    assert endpoint.body == BODY


async def test_an_offer_keeps_the_other_options_of_its_connection(serve, gateway):
    endpoint = Endpoint(serve, json_response({"ok": True}))
    running = await gateway(one_chat(endpoint.url))
    offer = [("Connection", "Upgrade, close, X-Hop"), ("Upgrade", "h2c"), ("X-Hop", "secret")]
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, BODY, offer)
        await wire.write(b"GET /healthz HTTP/1.1\r\n\r\n")  # too late: it wanted to close
        answer = await wire.answer()
        assert answer.json == {"ok": True}
        assert answer.head["connection"] == "close"
        assert await wire.closed() == b""
    assert "x-hop" not in dict(endpoint.headers)


async def test_thousands_of_offers_at_once_are_declined_one_by_one(serve, gateway):
    running = await gateway(one_chat(Endpoint(serve).url))
    offer = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    async with connected(running.port) as wire, anyio.create_task_group() as tasks:
        tasks.start_soon(wire.write, offer * 2500)
        with anyio.fail_after(10):
            for _ in range(2500):
                assert (await wire.answer()).status == 200


@pytest.mark.parametrize(
    "beginning", [b"", b"POST /v1/chat/comp", b"GET /healthz HTTP/1.1\r\nA: b"]
)
async def test_a_connection_that_asks_nothing_is_closed(serve, gateway, monkeypatch, beginning):
    monkeypatch.setattr("forebay.gateway.connection._PATIENCE_S", 0.2)
    running = await gateway(one_chat(Endpoint(serve).url))
    async with connected(running.port) as wire:
        await wire.write(beginning)
        with anyio.fail_after(2):
            assert await wire.closed() == b""


async def test_a_stray_byte_does_not_keep_a_connection_for_ever(serve, gateway, monkeypatch):
    monkeypatch.setattr("forebay.gateway.connection._KEEP_ALIVE_S", 0.2)
    running = await gateway(one_chat(Endpoint(serve).url))
    async with connected(running.port) as wire:
        await wire.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await wire.answer()
        await wire.write(b"\r\n")
        with anyio.fail_after(2):
            assert await wire.closed() == b""


async def test_the_next_head_may_be_late_while_an_answer_is_under_way(serve, gateway, monkeypatch):
    monkeypatch.setattr("forebay.gateway.connection._PATIENCE_S", 0.1)

    async def script(peer):
        while await peer.request():
            await go.wait()
            await peer.send(json_response({"ok": True}))

    go = anyio.Event()
    running = await gateway(one_chat(serve(script).url))
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, BODY)
        await wire.write(b"GET /healthz HTT")
        await anyio.sleep(0.4)
        # Its time begins anew with the end of the answer: what ran before must not end it.
        monkeypatch.setattr("forebay.gateway.connection._PATIENCE_S", 30.0)
        go.set()
        assert (await wire.answer()).json == {"ok": True}
        await anyio.sleep(0.3)
        await wire.write(b"P/1.1\r\nHost: x\r\n\r\n")
        assert (await wire.answer()).status == 200


async def test_a_head_behind_a_large_body_is_not_taken_for_a_large_head(serve, gateway):
    endpoint = Endpoint(serve, json_response({"ok": True}))
    running = await gateway(one_chat(endpoint.url))
    large = json.dumps({"model": "m", "x": "y" * 150_000}).encode()
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    async with connected(running.port) as wire:
        await wire.write((head % (CHAT.encode(), len(large)) + large) * 2 + b"GET /heal")
        assert (await wire.answer()).json == {"ok": True}
        assert (await wire.answer()).json == {"ok": True}
        await wire.write(b"thz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await wire.answer()).status == 200


async def test_a_head_in_two_parts_is_no_reason_to_close(serve, gateway, monkeypatch):
    monkeypatch.setattr("forebay.gateway.connection._PATIENCE_S", 1.0)
    running = await gateway(one_chat(Endpoint(serve).url))
    async with connected(running.port) as wire:
        for _ in range(3):
            await wire.write(b"GET /healthz HTTP/1.1\r\n")
            await anyio.sleep(0.4)
            await wire.write(b"Host: x\r\n\r\n")
            assert (await wire.answer()).status == 200
            await anyio.sleep(0.15)


async def test_an_answer_that_nobody_reads_ends(serve, gateway, monkeypatch):
    """It is complete; what is left is in this process's buffers."""
    monkeypatch.setattr("forebay.gateway.connection._PATIENCE_S", 0.2)
    size = 8_000_000
    running = await gateway(one_chat(Endpoint(serve).url))
    monkeypatch.setattr(type(running.deployment), "status", lambda _: {"long": "x" * size})
    async with connected(running.port, receive_buffer=4096) as wire:
        await wire.send("GET", "/forebay/status", None, [("Connection", "close")])
        await wire.head()
        await eventually(lambda: not running.server.front.connections, within_s=5)
        assert len(await wire.closed()) < size
