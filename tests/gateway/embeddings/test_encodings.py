"""A client gets the encoding that it asked for, whatever the server makes of the question."""

from __future__ import annotations

import json

import pytest

from support.embedder import Embedder, embeddings, one_embedder, refusal, texts
from support.http_responses import json_response, response
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

FLOATS, PACKED = [0.25, -0.5], "AACAPgAAAL8="
NOT_SUPPORTED = "base64 encoding is not currently supported"


async def ask(running, inputs=("a",), **more):
    async with connected(running.port) as wire:
        body = {"model": "m", "input": list(inputs), **more}
        return await wire.ask("POST", "/v1/embeddings", body, [JSON])


def answer(*vectors, **more):
    data = [{"index": i, "embedding": value, **more} for i, value in enumerate(vectors)]
    return json_response({"object": "list", "data": data, "model": "n"})


def only_floats(request):
    """As servers that answer floats whatever they are asked for."""
    return answer(*[FLOATS] * len(request["input"]))


def refuses_base64(request):
    if request.get("encoding_format") == "base64":
        return refusal("400 Bad Request", NOT_SUPPORTED)
    return only_floats(request)


def both(request):
    wanted = PACKED if request.get("encoding_format") == "base64" else FLOATS
    return answer(*[wanted] * len(request["input"]))


def only_base64(request):
    return answer(*[PACKED] * len(request["input"]))


def vectors(got):
    assert got.status == 200, got.body
    return [item["embedding"] for item in got.json["data"]]


@pytest.mark.parametrize("server", [only_floats, refuses_base64, both, only_base64])
class TestWhateverTheServer:
    async def test_base64_is_what_one_gets_who_asked_for_it(self, serve, gateway, server):
        running = await gateway(one_embedder(Embedder(serve, server).url))
        for count in (1, 2, 1):
            got = await ask(running, "a" * count, encoding_format="base64")
            assert vectors(got) == [PACKED] * count
            assert int(got.head["content-length"]) == len(got.body)

    async def test_floats_are_what_one_gets_who_asked_for_them(self, serve, gateway, server):
        running = await gateway(one_embedder(Embedder(serve, server).url))
        assert vectors(await ask(running, "ab", encoding_format="float")) == [FLOATS] * 2

    async def test_floats_are_what_one_gets_who_did_not_say(self, serve, gateway, server):
        running = await gateway(one_embedder(Embedder(serve, server).url))
        assert vectors(await ask(running, "ab")) == [FLOATS] * 2

    async def test_pieces_are_converted_too(self, serve, gateway, server):
        def small(request):
            if len(request["input"]) > 2:
                return refusal("413 Payload Too Large", "maximum allowed batch size 2")
            return server(request)

        running = await gateway(one_embedder(Embedder(serve, small).url))
        assert vectors(await ask(running, "abcde", encoding_format="base64")) == [PACKED] * 5
        assert vectors(await ask(running, "abcde", encoding_format="float")) == [FLOATS] * 5


class TestWhatIsAsked:
    async def test_a_server_that_refused_base64_is_not_asked_again(self, serve, gateway):
        server = Embedder(serve, refuses_base64)
        running = await gateway(one_embedder(server.url))
        for _ in range(3):
            await ask(running, encoding_format="base64")
        asked = [request["encoding_format"] for request in server.requests]
        assert asked == ["base64", "float", "float", "float"]
        assert running.breaker("m")["state"] == "closed"

    async def test_no_encoding_is_added(self, serve, gateway):
        server = Embedder(serve, both)
        running = await gateway(one_embedder(server.url))
        await ask(running)
        assert "encoding_format" not in server.requests[0]

    async def test_null_is_the_same_as_none(self, serve, gateway):
        server = Embedder(serve, both)
        running = await gateway(one_embedder(server.url))
        got = await ask(running, encoding_format=None, dimensions=2)
        assert vectors(got) == [FLOATS]
        assert server.requests == [{"model": "m", "input": ["a"], "dimensions": 2}]

    async def test_one_retry_is_all(self, serve, gateway):
        server = Embedder(serve, lambda _: refusal("400 Bad Request", NOT_SUPPORTED))
        running = await gateway(one_embedder(server.url))
        got = await ask(running, encoding_format="base64")
        assert (got.status, got.json["message"]) == (400, NOT_SUPPORTED)
        assert len(server.bodies) == 2
        # It did not help, so it was not the encoding.
        await ask(running, encoding_format="base64")
        assert server.requests[2]["encoding_format"] == "base64"

    async def test_another_refusal_is_passed_on(self, serve, gateway):
        server = Embedder(serve, lambda _: refusal("400 Bad Request", "no such pooling"))
        running = await gateway(one_embedder(server.url))
        got = await ask(running, encoding_format="base64")
        assert (got.status, len(server.bodies)) == (400, 1)

    async def test_an_encoding_not_known_here_is_the_servers_affair(self, serve, gateway):
        reply = answer("odd", "strange")
        server = Embedder(serve, lambda _: reply)
        running = await gateway(one_embedder(server.url))
        got = await ask(running, "ab", encoding_format="bytes")
        assert got.body == reply.partition(b"\r\n\r\n")[2]
        assert server.requests[0]["encoding_format"] == "bytes"


class TestBase64ThatIsNone:
    @pytest.mark.parametrize("wanted", ["base64", "float"])
    @pytest.mark.parametrize(
        "sent",
        [
            pytest.param(["AACAPgAAAL8"], id="no padding"),
            pytest.param(["AACAPgAA"], id="6 bytes"),
            pytest.param(["AAA="], id="2 bytes"),
            pytest.param([""], id="nothing"),
            pytest.param(["AACAPgAAAL8=", "AACAPg=="], id="of different lengths"),
            pytest.param(["AACAPgAAAL8=", FLOATS[:1]], id="once, then floats of other length"),
        ],
    )
    async def test_is_the_endpoints_failure(self, serve, gateway, wanted, sent):
        if wanted == "float" and len(sent) > 1:
            sent = [sent[0], "AACAPgA="]
        running = await gateway(one_embedder(Embedder(serve, lambda _: answer(*sent)).url))
        got = await ask(running, "ab"[: len(sent)], encoding_format=wanted)
        assert (got.status, got.error["code"]) == (502, "upstream_invalid_response")
        assert running.counted("forebay_requests_total", outcome="failure") == 1

    async def test_values_that_json_has_no_number_for(self, serve, gateway):
        running = await gateway(one_embedder(Embedder(serve, lambda _: answer("AADAfw==")).url))
        got = await ask(running, encoding_format="float")
        assert (got.status, got.error["code"]) == (502, "upstream_invalid_response")

    @pytest.mark.parametrize("value", [["a"], [None], [1e39], {"a": 1}, [[0.5]]])
    async def test_floats_that_are_none_cannot_be_packed(self, serve, gateway, value):
        running = await gateway(one_embedder(Embedder(serve, lambda _: answer(value)).url))
        got = await ask(running, encoding_format="base64")
        assert (got.status, got.error["code"]) == (502, "upstream_invalid_response")


async def test_escaped_slashes_are_base64_too(serve, gateway):
    body = b'{"data":[{"index":0,"embedding":"AACAPgAAAL8="},'
    body += b'{"index":1,"embedding":"\\/\\/9\\/fwAAAAA="}]}'
    reply = response(body)
    running = await gateway(one_embedder(Embedder(serve, lambda _: reply).url))
    got = await ask(running, "ab", encoding_format="base64")
    assert vectors(got) == [PACKED, "//9/fwAAAAA="]


async def test_an_item_does_not_tell_an_encoding_that_it_lost(serve, gateway):
    reply = answer(PACKED, encoding_format="base64", object="embedding")
    running = await gateway(one_embedder(Embedder(serve, lambda _: reply).url))
    (item,) = (await ask(running)).json["data"]
    assert item == {"index": 0, "embedding": FLOATS, "object": "embedding"}


async def test_what_was_asked_for_is_passed_on_byte_for_byte(serve, gateway):
    reply = embeddings({"input": texts(3), "encoding_format": "base64"})
    running = await gateway(one_embedder(Embedder(serve, lambda _: reply).url))
    got = await ask(running, texts(3), encoding_format="base64")
    assert got.body == reply.partition(b"\r\n\r\n")[2]
    assert json.loads(got.body)["model"] == "m-1"
