"""Comments keep a stream alive that has nothing to say yet, and never stand in a text's way."""

from __future__ import annotations

import asyncio
import time

import anyio
import pytest

from support.configs import one_chat
from support.endpoint import Endpoint
from support.http_responses import DONE, LAST_CHUNK, STREAM, chunk, event, good_stream
from support.http_responses import json_response as json_answer
from support.waiting import eventually
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
PLAIN, STREAMING = b'{"model":"m"}', b'{"model":"m","stream":true}'
OFTEN = {"sse_keepalive_s": 0.05}
COMMENT = b": keep-alive\n\n"


class SlowEndpoint:
    """Answers when it is told to."""

    def __init__(self, serve, answer):
        self.go = asyncio.Event()
        self.answer = answer
        self.server = serve(self._script)
        self.url = self.server.url

    async def _script(self, peer):
        while await peer.request():
            await self.go.wait()
            await peer.send(self.answer)


async def test_a_stream_that_waits_gets_a_comment_in_every_interval(serve, gateway):
    endpoint = SlowEndpoint(serve, good_stream("hello"))
    running = await gateway(one_chat(endpoint.url, ceiling=1, forebay=OFTEN))
    async with connected(running.port) as ahead, connected(running.port) as wire:
        await ahead.send("POST", CHAT, PLAIN)
        await eventually(lambda: running.inflight == 1)
        started = time.monotonic()
        await wire.send("POST", CHAT, STREAMING)
        head = await wire.head()
        assert time.monotonic() - started > 0.04  # nothing is committed before it has to be
        assert (head.status, head["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert head["x-request-id"]
        for _ in range(4):  # two of them waiting in the queue, at least
            with anyio.fail_after(1):
                assert await wire.piece() == COMMENT
        ahead.leave()
        await eventually(lambda: running.queued == 0)
        for _ in range(4):  # and now while the endpoint computes
            with anyio.fail_after(1):
                assert await wire.piece() == COMMENT
        endpoint.go.set()
        pieces = [piece for piece in await wire.rest() if piece != COMMENT]
    assert pieces == [event("hello"), event("", "stop"), DONE]


async def test_a_quick_answer_has_no_comments_and_its_own_headers(serve, gateway):
    running = await gateway(one_chat(Endpoint(serve, good_stream("a")).url, forebay=OFTEN))
    async with connected(running.port) as wire:
        answer = await wire.ask("POST", CHAT, STREAMING)
    assert COMMENT not in answer.body
    assert answer.head["x-forebay-endpoint"]


async def test_no_comment_comes_once_the_text_has_begun(serve, gateway):
    async def script(peer):
        await peer.answer(STREAM, chunk(b'data: {"a":'))
        await anyio.sleep(0.2)
        await peer.send(chunk(b'1}\n\ndata: {"b'))
        await anyio.sleep(0.2)
        await peer.send(chunk(b'": 2}\n\n') + chunk(DONE) + LAST_CHUNK)

    running = await gateway(one_chat(serve(script).url, forebay=OFTEN))
    async with connected(running.port) as wire:
        answer = await wire.ask("POST", CHAT, STREAMING)
    text = answer.body[answer.body.index(b"data:") :]
    assert text == b'data: {"a":1}\n\ndata: {"b": 2}\n\n' + DONE
    assert answer.body.count(COMMENT) >= 2


async def test_a_refusal_after_comments_is_an_error_event(serve, gateway):
    running = await gateway(one_chat(Endpoint(serve).url, ceiling=1, forebay=OFTEN))
    async with connected(running.port) as ahead, connected(running.port) as wire:
        await ahead.send("POST", CHAT, PLAIN)
        await eventually(lambda: running.inflight == 1)
        await wire.send("POST", CHAT, STREAMING, [("X-Request-Timeout", "0.2")])
        answer = await wire.answer()
    assert answer.status == 200
    assert answer.pieces[0] == COMMENT
    (only,) = answer.events
    assert b'"code":"deadline"' in only
    assert answer.body.endswith(b"\n\n")


@pytest.mark.parametrize(
    ("late", "says"),
    [
        (json_answer({"error": {"message": "too long"}}, status="400 Bad Request"), b"too long"),
        (json_answer({"error": {"message": "queue full"}}, status="503 Busy"), b"queue full"),
        (json_answer({"choices": []}), b"does not stream"),
        (STREAM + chunk(b'data: {"error":{"message":"CUDA"}}\n\n') + LAST_CHUNK, b"CUDA"),
        (STREAM + LAST_CHUNK, b"without an event"),
    ],
)
async def test_a_late_failure_is_an_error_event(serve, gateway, late, says):
    endpoint = SlowEndpoint(serve, late)
    running = await gateway(one_chat(endpoint.url, forebay=OFTEN))
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, STREAMING)
        await wire.head()
        endpoint.go.set()
        pieces = await wire.rest()
    assert b'data: {"error":{' in pieces[-1]
    assert says in pieces[-1]
    await eventually(lambda: running.idle)


async def test_a_quick_refusal_keeps_its_status(serve, gateway):
    error = json_answer({"error": {"message": "bad"}}, status="422 Unprocessable")
    running = await gateway(one_chat(Endpoint(serve, error).url, forebay=OFTEN))
    async with connected(running.port) as wire:
        assert (await wire.ask("POST", CHAT, STREAMING)).status == 422


async def test_a_plain_request_gets_no_byte_early(serve, gateway):
    endpoint = SlowEndpoint(serve, json_answer({"ok": True}))
    running = await gateway(one_chat(endpoint.url, forebay=OFTEN))
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, PLAIN)
        with anyio.move_on_after(0.3):
            await wire.head()
            pytest.fail("a head came before there was an answer")
        endpoint.go.set()
    async with connected(running.port) as wire:
        assert (await wire.ask("POST", CHAT, PLAIN)).json == {"ok": True}


async def test_it_can_be_switched_off(serve, gateway):
    endpoint = SlowEndpoint(serve, good_stream("a"))
    running = await gateway(one_chat(endpoint.url, forebay={"sse_keepalive_s": 0}))
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, STREAMING)
        with anyio.move_on_after(0.3):
            await wire.head()
            pytest.fail("a head came before there was an answer")


async def test_the_endpoints_own_comments_are_no_first_token(serve, gateway):
    async def script(peer):
        await peer.answer(STREAM, chunk(b": processing\n\n"))
        await anyio.sleep(0.3)
        await peer.send(good_stream("a").removeprefix(STREAM))

    running = await gateway(one_chat(serve(script).url))
    async with connected(running.port) as wire:
        answer = await wire.ask("POST", CHAT, STREAMING)
    assert answer.body.startswith(b": processing\n\n")
    assert running.counted("forebay_first_token_seconds_sum") > 0.25
