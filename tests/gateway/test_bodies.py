"""Request bodies: large ones, broken ones, packed ones, forms."""

from __future__ import annotations

import gzip
import io
import json
import time
import tracemalloc

import aiohttp
import anyio
import pytest

from forebay.proxy.look import decoded, look_at
from forebay.proxy.message import Request
from forebay.proxy.refusal import Refused
from support.configs import one_chat
from support.endpoint import Endpoint
from support.http_responses import LAST_CHUNK, chunk, json_response
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
MIB = 1024 * 1024


async def asked(running, body, *headers):
    async with connected(running.port) as wire:
        return await wire.ask("POST", CHAT, body, headers)


class TestTheLimit:
    LIMIT = 1000

    @pytest.fixture
    async def small(self, serve, gateway):
        endpoint = Endpoint(serve, json_response({}))
        return await gateway(one_chat(endpoint.url, forebay={"body_limit_bytes": self.LIMIT}))

    def body(self, size):
        return b'{"model":"m","x":"' + b"x" * (size - 20) + b'"}'

    async def test_is_inclusive(self, small):
        assert (await asked(small, self.body(self.LIMIT))).status == 200
        assert (await asked(small, self.body(self.LIMIT + 1))).status == 413

    async def test_an_announced_body_is_refused_before_it_is_sent(self, small):
        async with connected(small.port) as wire:
            await wire.send("POST", CHAT, None, [("Content-Length", "1001")])
            answer = await wire.answer()
        assert (answer.status, answer.error["code"]) == (413, "too_large")
        assert "1000" in answer.error["message"]

    async def test_a_client_that_waits_for_leave_gets_none(self, small):
        async with connected(small.port) as wire:
            expect = ("Expect", "100-continue")
            await wire.send("POST", CHAT, None, [("Content-Length", "1001"), expect])
            assert (await wire.answer()).status == 413

    async def test_a_client_that_waits_for_leave_gets_it(self, small):
        async with connected(small.port) as wire:
            body = self.body(500)
            expect = ("Expect", "100-continue")
            await wire.send("POST", CHAT, None, [("Content-Length", "500"), expect])
            assert (await wire.head()).status == 100
            await wire.write(body)
            assert (await wire.answer()).status == 200

    async def test_a_chunked_body_is_refused_where_it_passes_the_limit(self, small):
        async with connected(small.port) as wire:
            await wire.send("POST", CHAT, None, [("Transfer-Encoding", "chunked")])
            for _ in range(11):
                await wire.write(chunk(b" " * 100))
            assert (await wire.answer()).status == 413  # although the body has no end yet

    async def test_a_client_that_sends_it_all_the_same_reads_the_refusal(self, small):
        """Megabytes that nobody reads must not reset the connection under the answer."""
        async with connected(small.port) as wire:
            await wire.send("POST", CHAT, self.body(8 * MIB))
            answer = await wire.answer()
            assert answer.status == 413
            assert answer.head["connection"] == "close"
            assert await wire.closed() == b""

    async def test_aiohttp_reads_the_refusal_of_what_it_still_sends(self, small):
        async def endless():
            while True:
                yield b" " * 65536

        async with aiohttp.ClientSession() as session:
            for data in (io.BytesIO(self.body(8 * MIB)), endless()):
                async with session.post(f"{small.url}{CHAT}", data=data) as response:
                    assert response.status == 413
                    assert (await response.json())["error"]["code"] == "too_large"

    async def test_is_64_mib_by_default(self, serve, gateway):
        endpoint = Endpoint(serve, json_response({}))
        running = await gateway(one_chat(endpoint.url))
        whole = self.body(64 * MIB)
        assert (await asked(running, whole)).status == 200
        assert endpoint.body == whole
        assert (await asked(running, whole + b" ")).status == 413


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"model":"m"',
        b'{"model":"m"}x',
        b'{"model":"m",}',
        b"{'model':'m'}",
        b'{"model":"m","x":NaN}',
        b'{"model":"m","x":Infinity}',
        b'{"model":"m","x":01}',
        b'{"model":"m","x":"\xff"}',
        b'{"model":"m","x":"\xed\xa0\x80"}',
        b'{"model":"\\ud800"}',
        b'{"model":"m\x00"}',
        b"\xef\xbb\xbf{}",
        b'{"model":"m","x":' + b"[" * 200_000,
        b'{"model":"m","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[]",
        b'"m"',
        b"17",
        b"null",
        b'{"model":7}',
        b'{"model":["m"]}',
        b'{"model":{"m":1}}',
        b'{"model":"m","stream":"yes"}',
        b'{"model":"m","stream":1}',
        b'{"model":"m","service_tier":7}',
        b"model=m",
        b"\x00\x01\x02",
    ],
)
async def test_what_is_no_request_is_400_and_no_endpoint_hears_of_it(serve, gateway, body):
    endpoint = Endpoint(serve, json_response({}))
    running = await gateway(one_chat(endpoint.url))
    answer = await asked(running, body, JSON)
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"
    assert endpoint.requests == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","stream":null,"service_tier":null}',
        b'\r\n\t {"model":"m"}\n',
        b'{"model":"\\u006d"}',
        b'{"model":"other","model":"m"}',
        b'{"model":"m","x":"\\ud83d\\ude00 \xf0\x9f\x98\x80"}',
        b'{"model":"m","x":' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"model":"m","x":123456789012345678901234567890e400}',
    ],
)
async def test_odd_but_valid_json_passes(serve, gateway, body):
    endpoint = Endpoint(serve, json_response({}))
    running = await gateway(one_chat(endpoint.url))
    assert (await asked(running, body)).status == 200
    assert endpoint.body == body


class TestPacked:
    PLAIN = json.dumps({"model": "m", "input": "x" * 1000}).encode()
    GZIP = ("Content-Encoding", "gzip")

    @pytest.mark.parametrize("name", ["gzip", "x-gzip", "GZIP"])
    async def test_gzip_is_unpacked_on_the_way(self, serve, gateway, name):
        endpoint = Endpoint(serve, json_response({}))
        running = await gateway(one_chat(endpoint.url))
        answer = await asked(running, gzip.compress(self.PLAIN), ("Content-Encoding", name))
        assert answer.status == 200
        assert endpoint.body == self.PLAIN
        sent = dict(endpoint.headers)
        assert "content-encoding" not in sent
        assert sent["content-length"] == str(len(self.PLAIN))

    @pytest.mark.parametrize(
        "packed",
        [
            gzip.compress(PLAIN)[:-9],
            gzip.compress(PLAIN)[:40],
            gzip.compress(PLAIN)[:5],
            gzip.compress(PLAIN) + b"more",
            gzip.compress(PLAIN[:40]) + gzip.compress(PLAIN[40:]),
            b"\x1f\x8b" + b"\xff" * 50,
            PLAIN,
            gzip.compress(PLAIN)[:-8] + b"\0" * 8,
        ],
    )
    async def test_broken_gzip_is_400(self, serve, gateway, packed):
        endpoint = Endpoint(serve, json_response({}))
        running = await gateway(one_chat(endpoint.url))
        answer = await asked(running, packed, self.GZIP)
        assert (answer.status, answer.error["code"]) == (400, "invalid_gzip")
        assert endpoint.requests == []

    async def test_a_bomb_is_413_and_takes_no_memory(self, serve, gateway):
        endpoint = Endpoint(serve, json_response({}))
        running = await gateway(one_chat(endpoint.url, forebay={"body_limit_bytes": MIB}))
        bomb = gzip.compress(b" " * (64 * MIB))
        assert len(bomb) < MIB
        tracemalloc.start()
        try:
            assert (await asked(running, bomb, self.GZIP)).status == 413
            assert tracemalloc.get_traced_memory()[1] < 8 * MIB
        finally:
            tracemalloc.stop()

    async def test_an_empty_body_is_no_gzip(self, serve, gateway):
        running = await gateway(one_chat(Endpoint(serve, json_response({})).url))
        assert (await asked(running, b"", self.GZIP)).status == 400

    @pytest.mark.parametrize("name", ["br", "deflate", "zstd", "gzip, gzip"])
    async def test_other_encodings_are_415(self, serve, gateway, name):
        running = await gateway(one_chat(Endpoint(serve, json_response({})).url))
        answer = await asked(running, self.PLAIN, ("Content-Encoding", name))
        assert (answer.status, answer.error["code"]) == (415, "unsupported_encoding")


def test_a_packed_body_is_not_kept_beside_the_unpacked_one():
    plain = b'{"model":"m"}'
    headers = [(b"content-encoding", b"gzip"), (b"x-more", b"1")]
    request = Request("POST", b"/v1/x", b"", headers, gzip.compress(plain))
    body = decoded(request, MIB)
    assert body == plain
    assert request.body is body
    assert request.headers == [(b"x-more", b"1")]
    assert b"content-encoding" not in request.fields


class TestForms:
    def form(self, *parts, boundary="xyz"):
        body = b"".join(
            f"--{boundary}\r\n".encode() + head + b"\r\n\r\n" + data + b"\r\n"
            for head, data in parts
        )
        return body + f"--{boundary}--\r\n".encode()

    FILE = (
        b'Content-Disposition: form-data; name="file"; filename="model"\r\nContent-Type: audio/wav',
        b'RIFF\x00\xff\r\n--xy\r\nname="model"\r\n\r\nother',
    )
    KIND = ("Content-Type", "multipart/form-data; boundary=xyz")

    @pytest.mark.parametrize(
        "head",
        [
            b'Content-Disposition: form-data; name="model"',
            b"content-disposition:form-data;name=model",
            b'Content-Disposition: form-data; name="model"\r\nContent-Type: text/plain',
            b'Content-Type: text/plain\r\nContent-Disposition: form-data; name="model"',
        ],
    )
    async def test_the_model_is_found_in_a_form(self, serve, gateway, head):
        endpoint = Endpoint(serve, json_response({"text": "hello"}))
        running = await gateway(one_chat(endpoint.url))
        body = self.form(self.FILE, (head, b"m"))
        assert (await asked(running, body, self.KIND)).json == {"text": "hello"}
        assert endpoint.body == body

    @pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary="])
    async def test_a_form_without_a_boundary_is_400(self, serve, gateway, kind):
        running = await gateway(one_chat(Endpoint(serve).url))
        answer = await asked(running, self.form(self.FILE), ("Content-Type", kind))
        assert (answer.status, answer.error["code"]) == (400, "invalid_form")

    async def test_a_form_without_a_model_is_400(self, serve, gateway):
        running = await gateway(one_chat(Endpoint(serve).url))
        answer = await asked(running, self.form(self.FILE), self.KIND)
        assert (answer.status, answer.error["code"]) == (400, "no_model")

    @pytest.mark.parametrize("filler", [b"-" * 60 * MIB, b"---\r\n\r\n" * 7 * MIB])
    async def test_a_form_of_countless_parts_is_400_at_once(self, serve, gateway, filler):
        running = await gateway(one_chat(Endpoint(serve).url))
        request = Request(
            "POST", b"/v1/x", b"", [(b"content-type", b"multipart/x; boundary=-")], b""
        )
        started = time.perf_counter()
        with pytest.raises(Refused, match="256 parts") as caught:
            look_at(request, filler)
        assert time.perf_counter() - started < 0.1
        assert caught.value.status == 400
        kind = ("Content-Type", "multipart/form-data; boundary=-")
        assert (await asked(running, filler[:MIB], kind)).error["code"] == "no_model"

    async def test_a_quoted_boundary_may_hold_anything(self, serve, gateway):
        running = await gateway(one_chat(Endpoint(serve, json_response({})).url))
        part = (b'Content-Disposition: form-data; name="model"', b"m")
        body = self.form(part, boundary="a b;c")
        kind = ("Content-Type", 'multipart/form-data; boundary="a b;c"')
        assert (await asked(running, body, kind)).status == 200


async def test_a_body_that_stops_coming_is_408(serve, gateway):
    endpoint = Endpoint(serve, json_response({}))
    running = await gateway(one_chat(endpoint.url, forebay={"timeouts": {"between_chunks_s": 0.2}}))
    for framing in (("Content-Length", "1000"), ("Transfer-Encoding", "chunked")):
        async with connected(running.port) as wire:
            await wire.send("POST", CHAT, None, [framing])
            with anyio.fail_after(3):
                answer = await wire.answer()
        assert (answer.status, answer.error["code"]) == (408, "stalled")
    assert endpoint.requests == []


async def test_a_slow_body_that_keeps_coming_is_served(serve, gateway):
    running = await gateway(
        one_chat(
            Endpoint(serve, json_response({})).url,
            forebay={"timeouts": {"between_chunks_s": 0.3}},
        )
    )
    body = b'{"model":"m"}'
    async with connected(running.port) as wire:
        await wire.send("POST", CHAT, None, [("Transfer-Encoding", "chunked")])
        for number in range(len(body)):
            await wire.write(chunk(body[number : number + 1]))
            await anyio.sleep(0.05)
        await wire.write(LAST_CHUNK)
        assert (await wire.answer()).status == 200
