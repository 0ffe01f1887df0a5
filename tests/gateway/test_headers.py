"""Headers: what belongs to one hop stays there, keys stay where they belong, the rest passes."""

from __future__ import annotations

import gzip
import json

import pytest

from support.configs import one_chat
from support.endpoint import Endpoint
from support.http_responses import STREAM, chunk, good_stream, json_response, response
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m"}'


async def asked(running, *headers, body=BODY):
    async with connected(running.port) as wire:
        return await wire.ask("POST", CHAT, body, headers)


def values(headers, name):
    return [value for key, value in headers if key == name]


async def test_what_belongs_to_the_clients_hop_goes_no_further(serve, gateway):
    endpoint = Endpoint(serve, json_response({}))
    running = await gateway(one_chat(endpoint.url))
    await asked(
        running,
        JSON,
        ("Connection", "keep-alive, X-Foo"),
        ("X-Foo", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("Proxy-Authorization", "Basic abc"),
        ("TE", "trailers"),
        ("Accept-Encoding", "br, gzip"),
        ("X-Bar", "2"),
        ("X-Bar", "3"),
    )
    sent = dict(endpoint.headers)
    for name in ("connection", "keep-alive", "proxy-connection", "proxy-authorization", "te"):
        assert name not in sent
    assert "x-foo" not in sent
    assert values(endpoint.headers, "x-bar") == ["2", "3"]
    assert sent["content-type"] == "application/json"
    assert sent["accept-encoding"] == "identity"
    assert values(endpoint.headers, "host") == [endpoint.url.removeprefix("http://")]
    assert values(endpoint.headers, "content-length") == [str(len(BODY))]


async def test_what_belongs_to_the_endpoints_hop_goes_no_further(serve, gateway):
    body = b'{"object":"list","data":[]}'
    endpoint = Endpoint(
        serve,
        response(
            body,
            "Connection: keep-alive, X-Hop",
            "Keep-Alive: timeout=5",
            "X-Hop: 1",
            "Proxy-Authenticate: Basic",
            "Set-Cookie: s=1",
            "Set-Cookie: t=2",
            "Server: uvicorn",
            "Date: Sun, 06 Nov 1994 08:49:37 GMT",
        ),
    )
    running = await gateway(one_chat(endpoint.url))
    head = (await asked(running)).head
    for name in ("connection", "keep-alive", "x-hop", "proxy-authenticate", "transfer-encoding"):
        assert head.get(name) is None
    assert head["content-length"] == str(len(body))
    assert head.all("set-cookie") == ["s=1", "t=2"]
    assert head.all("server") == ["uvicorn"]
    assert head.all("date") == ["Sun, 06 Nov 1994 08:49:37 GMT"]


async def test_an_answer_without_a_date_gets_one(serve, gateway):
    endpoint = Endpoint(serve, json_response({}))
    running = await gateway(one_chat(endpoint.url))
    assert (await asked(running)).head["date"].endswith(" GMT")
    refused = await asked(running, body=b"{}")
    assert refused.status == 400
    assert refused.head["date"].endswith(" GMT")


async def test_a_clients_key_stays_here_and_the_endpoint_gets_its_own(serve, gateway):
    endpoint = Endpoint(serve, json_response({}))
    keys = [
        ("Authorization", "Bearer client-key"),
        ("X-Api-Key", "client-key"),
        ("Api-Key", "client-key"),
    ]
    running = await gateway(one_chat(endpoint.url, api_key="endpoint-key"))
    await asked(running, *keys)
    assert values(endpoint.headers, "authorization") == ["Bearer endpoint-key"]
    assert b"client-key" not in endpoint.requests[-1]

    without = await gateway(one_chat(endpoint.url))
    await asked(without, *keys)
    assert values(endpoint.headers, "authorization") == []
    assert b"client-key" not in endpoint.requests[-1]


async def test_the_gateways_own_headers_go_no_further(serve, gateway):
    endpoint = Endpoint(serve, json_response({}))
    running = await gateway(one_chat(endpoint.url))
    await asked(
        running,
        ("X-Forebay-Priority", "best-effort"),
        ("X-Forebay-Affinity", "a"),
        ("X-Request-Timeout", "30"),
    )
    names = [name for name, _ in endpoint.headers]
    assert not [name for name in names if name.startswith("x-forebay")]
    assert "x-request-timeout" not in names


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_tells_where_it_comes_from_and_how_long_it_waited(serve, gateway, stream):
    endpoint = Endpoint(serve, good_stream("a") if stream else json_response({}))
    running = await gateway(one_chat(endpoint.url))
    head = (await asked(running)).head
    host = endpoint.url.removeprefix("http://")
    assert head["x-forebay-endpoint"] == f"m@{host}"
    assert int(head["x-forebay-queued-ms"]) >= 0


class TestRequestId:
    async def test_a_sent_one_goes_to_the_endpoint_and_comes_back(self, serve, gateway):
        endpoint = Endpoint(serve, json_response({}, "X-Request-Id: theirs"))
        running = await gateway(one_chat(endpoint.url))
        answer = await asked(running, ("X-Request-Id", "mine-7"))
        assert answer.head["x-request-id"] == "mine-7"
        assert values(endpoint.headers, "x-request-id") == ["mine-7"]

    async def test_a_sent_one_comes_back_with_a_refusal(self, serve, gateway):
        running = await gateway(one_chat(Endpoint(serve).url))
        answer = await asked(running, ("X-Request-Id", "mine-7"), body=b'{"model":"other"}')
        assert (answer.status, answer.head["x-request-id"]) == (404, "mine-7")

    async def test_one_of_the_endpoint_is_kept(self, serve, gateway):
        endpoint = Endpoint(serve, json_response({}, "X-Request-Id: theirs"))
        running = await gateway(one_chat(endpoint.url))
        assert (await asked(running)).head["x-request-id"] == "theirs"

    async def test_each_request_has_one_of_its_own(self, serve, gateway):
        endpoint = Endpoint(serve, json_response({}))
        running = await gateway(one_chat(endpoint.url))
        ids = {(await asked(running)).head["x-request-id"] for _ in range(3)}
        assert len(ids) == 3
        assert values(endpoint.headers, "x-request-id")[0] in ids


class TestCompressedAnswers:
    """Some servers compress although they were asked not to."""

    @pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "500 Internal Server Error"])
    async def test_bytes_and_headers_still_belong_together(self, serve, gateway, status):
        packed = gzip.compress(json.dumps({"object": "list", "data": []}).encode())
        headers = ["Content-Type: application/json", "Content-Encoding: gzip"]
        endpoint = Endpoint(serve, response(packed, *headers, status=status))
        running = await gateway(one_chat(endpoint.url))
        answer = await asked(running)
        assert answer.status == int(status[:3])
        assert answer.head["content-encoding"] == "gzip"
        assert answer.head["content-length"] == str(len(packed))
        assert gzip.decompress(answer.body) == b'{"object": "list", "data": []}'

    async def test_a_compressed_stream_passes_as_it_is(self, serve, gateway):
        packed = gzip.compress(b'data: {"choices":[]}\n\ndata: [DONE]\n\n')
        head = STREAM.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
        endpoint = Endpoint(serve, head, chunk(packed[:20]), chunk(packed[20:]), chunk(b""))
        running = await gateway(one_chat(endpoint.url))
        answer = await asked(running, body=b'{"model":"m","stream":true}')
        assert answer.head["content-encoding"] == "gzip"
        assert gzip.decompress(answer.body).endswith(b"[DONE]\n\n")
        assert running.counted("forebay_requests_total", outcome="ok") == 1
