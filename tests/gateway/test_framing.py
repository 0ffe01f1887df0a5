"""Where an answer ends: the client can tell a whole one from one that was cut."""

from __future__ import annotations

import anyio
import pytest

from support.configs import one_chat
from support.endpoint import Endpoint
from support.http_responses import chunk, json_response
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m"}'
HTTP_1_0 = b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (CHAT.encode(), len(BODY), BODY)
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_an_answer_that_ends_with_its_connection_is_whole(serve, gateway):
    endpoint = Endpoint(serve, CHUNKED + chunk(b'{"a":1}') + b"0\r\n\r\n")
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        await wire.write(HTTP_1_0)
        assert (await wire.reader.read()).endswith(b'\r\n\r\n{"a":1}')


async def test_one_that_is_cut_does_not_look_whole(serve, gateway):
    async def script(peer):
        await peer.answer(CHUNKED + chunk(b'{"a":'))
        await go.wait()
        peer.close()

    go = anyio.Event()
    running = await gateway(one_chat(serve(script).url))
    async with connected(running.port) as wire:
        await wire.write(HTTP_1_0)
        await wire.head()
        go.set()
        with pytest.raises(ConnectionResetError):
            await wire.reader.read()


async def test_no_content_tells_no_length(serve, gateway):
    endpoint = Endpoint(serve, b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        for _ in range(2):
            await wire.send("POST", CHAT, BODY)
            head = await wire.head()
            assert head.status == 204
            assert head.get("content-length") is None
            assert head.get("transfer-encoding") is None


async def test_nothing_is_sent_beyond_the_length_that_was_told(serve, gateway, monkeypatch):
    """The client would take it for the beginning of its next answer."""
    monkeypatch.setattr(
        "forebay.proxy.headers.Received.to_client",
        lambda *_args, **_more: [(b"content-length", b"3")],
    )
    running = await gateway(one_chat(Endpoint(serve, json_response({"ok": True})).url))
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, BODY)
        await wire.head()
        assert await wire.closed() == b'{"o'
