"""What passes through is not changed by a byte, nor held back, nor joined."""

from __future__ import annotations

import asyncio
import json

import pytest

from support.configs import one_chat
from support.endpoint import Endpoint
from support.http_responses import DONE, LAST_CHUNK, STREAM, chunk, event, json_response, response
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"


async def test_a_request_body_arrives_as_it_was_sent(serve, gateway):
    endpoint = Endpoint(serve, json_response({}))
    running = await gateway(one_chat(endpoint.url))
    odd = b' {\t"unknown" : [1.0,\n  1e2, {"\\u00e4":"\xc3\xa4"}],\r\n "model":"m"  , "x":null}\n\n'
    async with connected(running.port) as wire:
        answer = await wire.ask("POST", CHAT, odd, [JSON])
    assert answer.status == 200
    assert endpoint.body == odd


async def test_a_chunked_request_body_arrives_whole(serve, gateway):
    endpoint = Endpoint(serve, json_response({}))
    running = await gateway(one_chat(endpoint.url))
    body = json.dumps({"model": "m", "input": "x" * 100_000}).encode()
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, None, [JSON, ("Transfer-Encoding", "chunked")])
        for start in range(0, len(body), 7_001):
            await wire.write(chunk(body[start : start + 7_001]))
        await wire.write(LAST_CHUNK)
        assert (await wire.answer()).status == 200
    assert endpoint.body == body


async def test_path_and_query_arrive_as_they_were_sent(serve, gateway):
    endpoint = Endpoint(serve, json_response({}))
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        await wire.ask("POST", "/v1/a%20b/c;d=1?x=%C3%A4&y=", b'{"model":"m"}')
    assert endpoint.requests[0].startswith(b"POST /v1/a%20b/c;d=1?x=%C3%A4&y= HTTP/1.1\r\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_methods_pass(serve, gateway, method):
    endpoint = Endpoint(serve, json_response({}))
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        answer = await wire.ask(method, "/v1/files", b'{"model":"m"}')
    assert answer.status == 200
    assert endpoint.requests[0].startswith(method.encode())


async def test_a_request_without_a_body_names_its_model_in_the_query(serve, gateway):
    endpoint = Endpoint(serve, json_response({"ok": True}))
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        answer = await wire.ask("GET", "/v1/audio/voices?model=m", None)
    assert answer.json == {"ok": True}


async def test_a_head_request_gets_a_head_alone(serve, gateway):
    endpoint = Endpoint(serve, b"HTTP/1.1 200 OK\r\nContent-Length: 71\r\n\r\n")
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        await wire.send("HEAD", "/v1/files?model=m", None)
        head = await wire.head()
        assert (head.status, head["content-length"]) == (200, "71")
        again = await wire.ask("GET", "/healthz", None)
    assert again.status == 200


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
async def test_a_response_body_arrives_as_it_was_sent(serve, gateway, size):
    body = bytes(range(256)) * (size // 256) + b"\xff" * (size % 256)
    endpoint = Endpoint(serve, response(body, "Content-Type: audio/wav"))
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        answer = await wire.ask("POST", "/v1/audio/speech", b'{"model":"m"}')
    assert answer.body == body
    assert answer.head["content-length"] == str(size)
    assert answer.head["content-type"] == "audio/wav"


async def test_a_response_that_ends_with_its_connection_arrives_whole(serve, gateway):
    async def script(peer):
        await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", b"x" * 70_000)
        peer.close()

    running = await gateway(one_chat(serve(script).url))
    async with connected(running.port) as wire:
        answer = await wire.ask("POST", "/v1/audio/transcriptions", b'{"model":"m"}')
        assert answer.body == b"x" * 70_000
        assert (await wire.ask("GET", "/healthz", None)).status == 200


async def test_no_content_stays_no_content(serve, gateway):
    endpoint = Endpoint(serve, b"HTTP/1.1 204 No Content\r\n\r\n")
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, b'{"model":"m"}')
        head = await wire.head()
        assert head.status == 204
        assert head.get("transfer-encoding") is None
        assert (await wire.ask("GET", "/healthz", None)).status == 200


async def test_each_event_passes_when_it_comes_and_by_itself(serve, gateway):
    told = asyncio.Queue()

    async def script(peer):
        await peer.answer(STREAM)
        while piece := await told.get():
            await peer.send(chunk(piece))
        await peer.send(LAST_CHUNK)

    running = await gateway(one_chat(serve(script).url))
    events = [event(word) for word in ("one", "two", "three")] + [event("", "stop"), DONE]
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, b'{"model":"m","stream":true}')
        told.put_nowait(events[0])
        assert (await wire.head()).status == 200
        assert await wire.piece() == events[0]
        for each in events[1:]:
            told.put_nowait(each)  # not before the one before has passed
            assert await wire.piece() == each
        told.put_nowait(b"")
        assert await wire.piece() == b""


AWKWARD = (
    b": ping\r\n\r\ndata:\r\n\r\nevent: message\r\nid: 7\r\n"
    b'data: {"choices":[{"delta":{"content":"\xc3\xa4\xf0\x9f\x98\x80"},"finish_reason":null}]}'
    b"\r\n\r\ndata: {\r\ndata: }\r\n\r\n: bye\r\ndata: [DONE]\r\n\r\n"
)


@pytest.mark.parametrize("size", [1, 2, 3, 17, 1000])
async def test_a_stream_passes_byte_for_byte_wherever_it_is_split(serve, gateway, size):
    pieces = [AWKWARD[start : start + size] for start in range(0, len(AWKWARD), size)]
    endpoint = Endpoint(serve, STREAM, *map(chunk, pieces), LAST_CHUNK)
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        answer = await wire.ask("POST", CHAT, b'{"model":"m","stream":true}')
    assert answer.pieces == pieces
    assert running.counted("forebay_requests_total", outcome="ok") == 1


async def test_an_error_of_an_endpoint_passes_as_it_is(serve, gateway):
    body = b'{ "error": {"message":"no such tool" , "odd": 1}}'
    refusal = response(body, "Content-Type: application/json", "X-Odd: 1", status="422 Odd")
    endpoint = Endpoint(serve, refusal)
    running = await gateway(one_chat(endpoint.url))
    for stream in ("true", "false"):
        async with connected(running.port) as wire:
            answer = await wire.ask("POST", CHAT, b'{"model":"m","stream":%b}' % stream.encode())
        assert (answer.status, answer.body, answer.head["x-odd"]) == (422, body, "1")


async def test_a_huge_error_passes_whole(serve, gateway):
    body = json.dumps({"error": {"message": "x" * 1_000_000}}).encode()
    endpoint = Endpoint(serve, response(body, status="400 Bad Request"))
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port) as wire:
        answer = await wire.ask("POST", CHAT, b'{"model":"m"}')
    assert answer.body == body
