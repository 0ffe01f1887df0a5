"""Every input gets its own vector, or the client gets an error: never a vector too few."""

from __future__ import annotations

import gzip
import json

import pytest

from support.embedder import Embedder, embeddings, one_embedder
from support.http_responses import json_response, response
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

INPUTS = ["t1", "t2", "t3", "t1"]


def answer(*data, **more):
    return json_response({"object": "list", "data": list(data), **more})


def item(index, value):
    return {"index": index, "embedding": [value]}


async def ask(running, body=None, headers=(JSON,)):
    async with connected(running.port) as wire:
        body = body or {"model": "m", "input": INPUTS}
        return await wire.ask("POST", "/v1/embeddings", body, headers)


async def answered(serve, gateway, reply):
    server = Embedder(serve, lambda _: reply)
    running = await gateway(one_embedder(server.url))
    return running, await ask(running)


@pytest.mark.parametrize("length", ["Content-Length", "chunked"])
async def test_a_right_answer_is_passed_on_byte_for_byte(serve, gateway, length):
    body = (
        b'{ "data":[{"index":0,"embedding":[1.0e0]},{"embedding" : [ -2], "index" :1},'
        b'{"index":2,"embedding":[3]},{"index":3,"embedding":[1]}]\n,"x":"\xc3\xa4"}\n'
    )
    reply = response(body, "Content-Type: application/json", "X-Odd: 1")
    if length == "chunked":
        pieces = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (body[:30], body[30:]))
        reply = b"HTTP/1.1 200 OK\r\nX-Odd: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
        reply += pieces + b"0\r\n\r\n"
    running, got = await answered(serve, gateway, reply)
    assert (got.status, got.body, got.head["x-odd"]) == (200, body, "1")
    assert got.head["x-forebay-endpoint"].startswith("m@")
    assert running.counted("forebay_requests_total", outcome="ok") == 1


async def test_a_right_request_is_passed_on_byte_for_byte(serve, gateway):
    server = Embedder(serve)
    running = await gateway(one_embedder(server.url))
    body = b' {"user":"\\u00e4", "input" : ["t1",\n "t2"],"model":"m", "dimensions":2}'
    assert (await ask(running, body)).status == 200
    assert server.bodies == [body]


async def test_items_out_of_order_are_put_in_order(serve, gateway):
    reply = answer(item(2, 3), item(0, 1), item(3, 1), item(1, 2), model="n", usage={"x": 1})
    _, got = await answered(serve, gateway, reply)
    assert got.status == 200
    assert got.json["data"] == [item(0, 1), item(1, 2), item(2, 3), item(3, 1)]
    assert (got.json["model"], got.json["usage"], got.json["object"]) == ("n", {"x": 1}, "list")
    assert int(got.head["content-length"]) == len(got.body)


async def test_without_any_index_the_order_received_counts(serve, gateway):
    reply = answer(*({"embedding": [value]} for value in (1, 2, 3, 1)))
    _, got = await answered(serve, gateway, reply)
    assert got.status == 200
    assert [(i["index"], i["embedding"]) for i in got.json["data"]] == [
        (0, [1]),
        (1, [2]),
        (2, [3]),
        (3, [1]),
    ]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param([item(0, 1), item(2, 3), item(3, 1)], id="one missing"),
        pytest.param([item(0, 1), item(1, 2), item(1, 2), item(3, 1)], id="one twice"),
        pytest.param([item(0, 1), item(1, 2), item(2, 3), item(7, 1)], id="out of range"),
        pytest.param([item(1, 1), item(2, 2), item(3, 3), item(4, 1)], id="counted from 1"),
        pytest.param([item(i, 1) for i in range(5)], id="one too many"),
        pytest.param([item(i, 1) for i in (0, 1, 2, 3, 3)], id="one too many twice"),
        pytest.param([{"embedding": [1]}] * 3, id="no index, one missing"),
        pytest.param([*([{"embedding": [1]}] * 3), item(3, 1)], id="an index now and then"),
        pytest.param([item("0", 1), *(item(i, 1) for i in (1, 2, 3))], id="index as text"),
        pytest.param([item(-1, 1), *(item(i, 1) for i in (0, 1, 2))], id="index below 0"),
        pytest.param([*(item(i, 1) for i in (0, 1, 2)), {"index": 3}], id="no vector"),
        pytest.param(
            [*(item(i, 1) for i in (0, 1, 2)), {"index": 3, "embedding": []}], id="empty vector"
        ),
        pytest.param([], id="nothing"),
    ],
)
async def test_an_input_without_its_own_vector_is_the_endpoints_failure(serve, gateway, data):
    running, got = await answered(serve, gateway, answer(*data))
    assert (got.status, got.error["code"]) == (502, "upstream_invalid_response")
    assert running.counted("forebay_requests_total", outcome="failure") == 1
    assert running.idle


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[[1]]", b'{"data":null}', b'{"data":[', b'{"data":[1,2,3,4]}', b"not json"],
)
async def test_what_is_no_list_of_embeddings_is_the_endpoints_failure(serve, gateway, body):
    running, got = await answered(serve, gateway, response(body, "Content-Type: application/json"))
    assert (got.status, got.error["code"]) == (502, "upstream_invalid_response")
    assert running.counted("forebay_requests_total", outcome="failure") == 1


async def test_repeated_failures_open_the_breaker(serve, gateway):
    server = Embedder(serve, lambda _: answer())
    running = await gateway(one_embedder(server.url))
    for _ in range(20):
        await ask(running)
    assert running.breaker("m")["state"] == "open"


@pytest.mark.parametrize("status", ["400 Bad Request", "500 Internal Server Error"])
async def test_an_endpoints_error_is_passed_on_as_it_is(serve, gateway, status):
    reply = json_response({"detail": "so it is"}, "X-Odd: 1", status=status)
    _, got = await answered(serve, gateway, reply)
    assert (got.status, got.body, got.head["x-odd"]) == (
        int(status[:3]),
        b'{"detail": "so it is"}',
        "1",
    )


async def test_a_cut_answer_is_a_clean_error(serve, gateway):
    async def script(peer):
        await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b'{"data":[')
        peer.close()

    running = await gateway(one_embedder(serve(script).url))
    got = await ask(running)
    assert (got.status, got.error["code"]) == (502, "upstream_error")


class TestCompressed:
    async def test_an_answer_is_checked_and_passed_on_compressed(self, serve, gateway):
        plain = embeddings({"input": INPUTS}).partition(b"\r\n\r\n")[2]
        zipped = gzip.compress(plain)
        _, got = await answered(serve, gateway, response(zipped, "Content-Encoding: gzip"))
        assert (got.status, got.body) == (200, zipped)
        assert got.head["content-encoding"] == "gzip"

    async def test_an_answer_that_is_changed_is_not_compressed_any_more(self, serve, gateway):
        data = [item(1, 2), item(0, 1), item(2, 3), item(3, 1)]
        zipped = gzip.compress(json.dumps({"data": data}).encode())
        _, got = await answered(serve, gateway, response(zipped, "Content-Encoding: gzip"))
        assert [i["embedding"] for i in got.json["data"]] == [[1], [2], [3], [1]]
        assert got.head.get("content-encoding") is None

    @pytest.mark.parametrize("encoding", ["gzip", "br"])
    async def test_one_that_cannot_be_read_is_a_failure(self, serve, gateway, encoding):
        reply = response(b"\x1f\x8b\x08abc", f"Content-Encoding: {encoding}")
        _, got = await answered(serve, gateway, reply)
        assert (got.status, got.error["code"]) == (502, "upstream_invalid_response")

    async def test_a_compressed_request_is_split_uncompressed(self, serve, gateway):
        def behave(request):
            if len(request["input"]) > 2:
                return json_response({"message": "maximum allowed batch size 2"}, status="422 X")
            return embeddings(request)

        server = Embedder(serve, behave)
        running = await gateway(one_embedder(server.url))
        body = gzip.compress(json.dumps({"model": "m", "input": INPUTS}).encode())
        got = await ask(running, body, [JSON, ("Content-Encoding", "gzip")])
        assert got.status == 200
        assert server.sizes == [4, 2, 2]
