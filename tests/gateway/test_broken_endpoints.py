"""Endpoints that fail: the client hears it in the best form left, the endpoint is charged once."""

from __future__ import annotations

import json

import anyio
import pytest

from support.configs import one_chat
from support.endpoint import Endpoint
from support.http_responses import (
    DONE,
    LAST_CHUNK,
    STREAM,
    chunk,
    event,
    good_stream,
    json_response,
    response,
)
from support.waiting import eventually
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
PLAIN, STREAMING = b'{"model":"m"}', b'{"model":"m","stream":true}'
QUICK_TO_GIVE_UP = {"timeouts": {"first_byte_s": 0.3, "between_chunks_s": 0.3, "connect_s": 1}}


async def asked(running, body=STREAMING, headers=()):
    async with connected(running.port) as wire:
        return await wire.ask("POST", CHAT, body, headers)


def outcomes(running):
    """How requests ended, as far as they were counted."""
    names = ("ok", "failure", "timeout", "congestion", "client_error", "loading", "cancelled")
    names += ("configuration",)
    counts = {name: running.counted("forebay_requests_total", outcome=name) for name in names}
    return {name: count for name, count in counts.items() if count}


def error_event(answer):
    """The error that ends a stream."""
    last = answer.events[-1]
    assert answer.body.endswith(last + b"\n\n")
    error = json.loads(last.removeprefix(b"data: "))["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize("body", [PLAIN, STREAMING])
class TestNoAnswer:
    async def test_reset(self, serve, gateway, body):
        async def script(peer):
            await peer.request()
            peer.reset()

        running = await gateway(one_chat(serve(script).url))
        answer = await asked(running, body)
        assert (answer.status, answer.error["code"]) == (502, "upstream_error")
        assert outcomes(running) == {"failure": 1}

    async def test_closed_in_the_middle_of_the_head(self, serve, gateway, body):
        async def script(peer):
            await peer.answer(b"HTTP/1.1 200 OK\r\nContent-")
            peer.close()

        running = await gateway(one_chat(serve(script).url))
        assert (await asked(running, body)).status == 502
        assert outcomes(running) == {"failure": 1}

    async def test_not_http(self, serve, gateway, body):
        running = await gateway(one_chat(Endpoint(serve, b"\x15\x03\x01 tls?\r\n\r\n").url))
        assert (await asked(running, body)).status == 502
        assert outcomes(running) == {"failure": 1}

    async def test_nobody_listens(self, serve, gateway, body):
        server = serve(None)
        await server.aclose()
        running = await gateway(one_chat(server.url))
        answer = await asked(running, body)
        assert answer.status == 502
        assert "no connection" in answer.error["message"]
        assert outcomes(running) == {"failure": 1}

    async def test_silence(self, serve, gateway, body):
        running = await gateway(one_chat(Endpoint(serve).url, forebay=QUICK_TO_GIVE_UP))
        answer = await asked(running, body)
        assert (answer.status, answer.error["code"]) == (504, "timeout")
        assert outcomes(running) == {"timeout": 1}


@pytest.mark.parametrize("body", [PLAIN, STREAMING])
class TestWrongAnswer:
    @pytest.mark.parametrize("kind", ["Content-Type: text/html", "Content-Type: application/json"])
    async def test_a_web_page_with_200(self, serve, gateway, body, kind):
        page = response(b" <!DOCTYPE html><html>Sign in</html>", kind)
        running = await gateway(one_chat(Endpoint(serve, page).url))
        answer = await asked(running, body)
        assert answer.status == 502
        assert "HTML" in answer.error["message"]
        assert outcomes(running) == {"failure": 1}

    async def test_a_web_page_with_503_is_told_as_json(self, serve, gateway, body):
        page = response(
            b"<html>down</html>", "Content-Type: text/html", status="503 Service Unavailable"
        )
        running = await gateway(one_chat(Endpoint(serve, page).url))
        answer = await asked(running, body)
        assert (answer.status, answer.error["code"]) == (503, "upstream_error")
        assert int(answer.head["retry-after"]) >= 1
        assert outcomes(running) == {"failure": 1}

    @pytest.mark.parametrize("status", ["302 Found", "301 Moved", "600 Odd", "999 Request denied"])
    async def test_a_status_that_no_api_has(self, serve, gateway, body, status):
        odd = response(b"", "Location: http://elsewhere.test/", status=status)
        running = await gateway(one_chat(Endpoint(serve, odd).url))
        answer = await asked(running, body)
        assert answer.status == 502
        assert status[:3] in answer.error["message"]
        assert answer.head.get("location") is None

    async def test_an_error_that_says_200(self, serve, gateway, body):
        error = {"error": {"message": "engine overloaded", "code": 503}}
        running = await gateway(one_chat(Endpoint(serve, json_response(error)).url))
        answer = await asked(running, body)
        assert answer.status == 503
        assert "engine overloaded" in answer.error["message"]
        assert int(answer.head["retry-after"]) >= 1
        assert outcomes(running) == {"congestion": 1}

    @pytest.mark.parametrize("key", ["error", None], ids=["nested", "bare"])
    async def test_an_error_that_says_200_and_what_object_it_is(self, serve, gateway, body, key):
        error = {"object": "error", "message": "CUDA error", "code": 500}
        answered = json_response({key: error} if key else error)
        running = await gateway(one_chat(Endpoint(serve, answered).url))
        answer = await asked(running, body)
        assert answer.status == 502
        assert "CUDA error" in answer.error["message"]
        assert outcomes(running) == {"failure": 1}

    async def test_a_header_that_cannot_be_passed_on(self, serve, gateway, body):
        odd = response(b"{}", "X-Odd: a\x01b")
        running = await gateway(one_chat(Endpoint(serve, odd).url))
        assert (await asked(running, body)).status == 502
        await eventually(lambda: running.idle)
        assert outcomes(running) == {"failure": 1}


class TestPlainAnswers:
    async def test_one_that_is_cut_is_never_a_whole_one(self, serve, gateway):
        async def script(peer):
            await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", b"12345")
            peer.close()

        running = await gateway(one_chat(serve(script).url))
        async with connected(running.port) as wire:
            await wire.send("POST", CHAT, PLAIN)
            raw = await wire.closed()
        assert raw.endswith(b"\r\n\r\n12345") or raw.startswith(b"HTTP/1.1 502")
        assert outcomes(running) == {"failure": 1}

    async def test_one_cut_in_chunks_is_never_a_whole_one(self, serve, gateway):
        async def script(peer):
            await peer.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(b"1"))
            peer.close()

        running = await gateway(one_chat(serve(script).url))
        async with connected(running.port) as wire:
            await wire.send("POST", CHAT, PLAIN)
            raw = await wire.closed()
        assert not raw.endswith(b"0\r\n\r\n")
        assert outcomes(running) == {"failure": 1}


class TestStreamsBeforeTheirFirstEvent:
    """Nothing is committed yet, so a failure has a status."""

    @pytest.mark.parametrize(
        ("code", "status", "outcome"),
        [
            ('"code":503,"type":"overloaded_error"', 503, "congestion"),
            ('"code":500', 502, "failure"),
            ('"type":"invalid_request"', 400, "client_error"),
            ('"code":429', 503, "congestion"),
        ],
    )
    async def test_an_error_as_the_first_event(self, serve, gateway, code, status, outcome):
        error = b'data: {"error":{"message":"sorry",%b}}\n\n' % code.encode()
        endpoint = Endpoint(serve, STREAM, chunk(error), chunk(DONE), LAST_CHUNK)
        running = await gateway(one_chat(endpoint.url))
        answer = await asked(running)
        assert answer.status == status
        assert "sorry" in answer.error["message"]
        assert outcomes(running) == {outcome: 1}

    async def test_an_error_split_over_many_pieces(self, serve, gateway):
        error = b': hello\r\n\r\ndata: {"error":{"message":"CUDA","code":500}}\r\n\r\n'
        pieces = [chunk(error[n : n + 1]) for n in range(len(error))]
        endpoint = Endpoint(serve, STREAM, *pieces, LAST_CHUNK)
        running = await gateway(one_chat(endpoint.url))
        assert (await asked(running)).status == 502

    @pytest.mark.parametrize("beginning", [b"", b": ping\n\n", b"data:\n\n"])
    async def test_an_end_without_an_event(self, serve, gateway, beginning):
        pieces = [chunk(beginning)] if beginning else []
        endpoint = Endpoint(serve, STREAM, *pieces, LAST_CHUNK)
        running = await gateway(one_chat(endpoint.url))
        assert (await asked(running)).status == 502
        assert outcomes(running) == {"failure": 1}

    async def test_comments_alone_do_not_keep_it_alive_for_ever(self, serve, gateway):
        async def script(peer):
            await peer.answer(STREAM)
            while True:
                await peer.send(chunk(b": ping\n\n"))
                await anyio.sleep(0.02)

        running = await gateway(one_chat(serve(script).url, forebay=QUICK_TO_GIVE_UP))
        answer = await asked(running)
        assert (answer.status, answer.error["code"]) == (504, "timeout")
        assert outcomes(running) == {"timeout": 1}

    async def test_a_late_head_leaves_the_rest_of_the_time_to_the_first_event(self, serve, gateway):
        async def script(peer):
            await peer.request()
            await anyio.sleep(0.6)
            await peer.send(STREAM)
            await anyio.sleep(0.2)
            await peer.send(good_stream("late").removeprefix(STREAM))

        running = await gateway(one_chat(serve(script).url))
        answer = await asked(running, headers=[("X-Request-Timeout", "1.1")])
        assert answer.status == 200
        assert outcomes(running) == {"ok": 1}


class TestStreamsUnderWay:
    """The status is out; what is left is an error event, and never a clean end."""

    BEGINNING = STREAM + chunk(event("one")) + chunk(event("two"))

    async def test_reset(self, serve, gateway):
        async def script(peer):
            await peer.answer(self.BEGINNING)
            await eventually(lambda: passed)
            peer.reset()

        passed = []
        running = await gateway(one_chat(serve(script).url))
        async with connected(running.port) as wire:
            await wire.send("POST", CHAT, STREAMING)
            head = await wire.head()
            passed += [await wire.piece()]
            pieces = await wire.rest()
        assert head.status == 200
        assert b'"code":"upstream_error"' in pieces[-1]
        await eventually(lambda: running.idle)
        assert outcomes(running) == {"failure": 1}

    async def test_closed_without_the_last_chunk(self, serve, gateway):
        async def script(peer):
            await peer.answer(self.BEGINNING)
            peer.close()

        running = await gateway(one_chat(serve(script).url))
        answer = await asked(running)
        assert error_event(answer)["code"] == "upstream_error"
        assert answer.pieces[0] == event("one")
        assert outcomes(running) == {"failure": 1}

    async def test_a_clean_end_in_the_middle_of_a_text(self, serve, gateway):
        running = await gateway(one_chat(Endpoint(serve, self.BEGINNING + LAST_CHUNK).url))
        answer = await asked(running)
        assert error_event(answer)["code"] == "upstream_error"
        assert outcomes(running) == {"failure": 1}

    async def test_cut_in_the_middle_of_an_event_the_error_is_one_of_its_own(self, serve, gateway):
        async def script(peer):
            await peer.answer(self.BEGINNING, chunk(b'data: {"choi'))
            peer.close()

        running = await gateway(one_chat(serve(script).url))
        answer = await asked(running)
        assert error_event(answer)["code"] == "upstream_error"

    @pytest.mark.parametrize("last", [b"", b'data: {"choices":[],"usage":{"total_tokens":3}}\n\n'])
    async def test_a_missing_done_after_a_finish_reason_is_a_success(self, serve, gateway, last):
        end = chunk(event("", "stop")) + (chunk(last) if last else b"") + LAST_CHUNK
        running = await gateway(one_chat(Endpoint(serve, self.BEGINNING + end).url))
        answer = await asked(running)
        assert b"error" not in answer.body
        assert outcomes(running) == {"ok": 1}

    async def test_a_stream_of_another_api_ends_as_it_likes(self, serve, gateway):
        events = chunk(b'event: message_start\ndata: {"type":"message_start"}\n\n')
        events += chunk(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
        running = await gateway(one_chat(Endpoint(serve, STREAM + events + LAST_CHUNK).url))
        assert b"error" not in (await asked(running)).body
        assert outcomes(running) == {"ok": 1}

    async def test_an_error_as_a_later_event_passes_and_counts(self, serve, gateway):
        error = b'data: {"error":{"message":"CUDA error","code":500}}\n\n'
        whole = self.BEGINNING + chunk(error) + chunk(DONE) + LAST_CHUNK
        running = await gateway(one_chat(Endpoint(serve, whole).url))
        answer = await asked(running)
        assert answer.pieces[2:] == [error, DONE]
        assert outcomes(running) == {"failure": 1}

    async def test_a_text_about_errors_is_no_error(self, serve, gateway):
        whole = good_stream('{"error": "x"}', '"error":')
        running = await gateway(one_chat(Endpoint(serve, whole).url))
        await asked(running)
        assert outcomes(running) == {"ok": 1}

    async def test_a_stall(self, serve, gateway):
        endpoint = Endpoint(serve, self.BEGINNING)
        running = await gateway(one_chat(endpoint.url, forebay=QUICK_TO_GIVE_UP))
        answer = await asked(running)
        assert error_event(answer)["code"] == "timeout"
        assert outcomes(running) == {"timeout": 1}
        await endpoint.server.left()

    async def test_comments_alone_are_a_stall(self, serve, gateway):
        async def script(peer):
            await peer.answer(self.BEGINNING)
            while True:
                await peer.send(chunk(b": ping\n\n"))
                await anyio.sleep(0.02)

        running = await gateway(one_chat(serve(script).url, forebay=QUICK_TO_GIVE_UP))
        assert error_event(await asked(running))["code"] == "timeout"

    async def test_a_long_event_in_small_pieces_is_no_stall(self, serve, gateway):
        async def script(peer):
            await peer.answer(self.BEGINNING)
            long_event = event("x" * 60, "stop")
            for start in range(0, len(long_event), 10):
                await peer.send(chunk(long_event[start : start + 10]))
                await anyio.sleep(0.04)
            await peer.send(LAST_CHUNK)

        running = await gateway(one_chat(serve(script).url, forebay=QUICK_TO_GIVE_UP))
        answer = await asked(running)
        assert answer.body.endswith(event("x" * 60, "stop"))
        assert outcomes(running) == {"ok": 1}


async def test_an_error_event_fits_behind_a_stream_whose_length_was_told(serve, gateway):
    events = event("one") + event("two")
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(events)}"
    running = await gateway(one_chat(Endpoint(serve, head.encode() + b"\r\n\r\n" + events).url))
    answer = await asked(running)
    assert answer.head.get("content-length") is None
    assert answer.body.startswith(events)
    assert error_event(answer)["code"] == "upstream_error"
