"""What no server could make sense of is refused before it takes anything from anybody."""

from __future__ import annotations

import json

import pytest

from support.embedder import Embedder, embeddings, one_embedder
from support.http_responses import json_response
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio

EMBEDDINGS = "/v1/embeddings"


async def ask(running, body):
    async with connected(running.port) as wire:
        return await wire.ask("POST", EMBEDDINGS, body, [JSON])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "input is missing"),
        ({"input": []}, "input is an empty list"),
        ({"input": ""}, "input is an empty text"),
        ({"input": None}, "input is null"),
        ({"input": 5}, "input is a number"),
        ({"input": True}, "input is a boolean"),
        ({"input": {"text": "x"}}, "input is an object"),
        ({"input": ["ok", ""]}, "input[1] is an empty text"),
        ({"input": ["ok", None]}, "input[1] is null"),
        ({"input": ["ok", 5]}, "input[1] is a number"),
        ({"input": ["ok", ["ok"]]}, "input[1] is a list"),
        ({"input": ["ok", "ok", {"text": "x"}]}, "input[2] is an object"),
        ({"input": [None]}, "input[0] is null"),
        ({"input": [{"text": "x"}]}, "input[0] is an object"),
        ({"input": [5, "ok"]}, "input[1] is a text"),
        ({"input": [5, [5]]}, "input[1] is a list"),
        ({"input": [5, -1]}, "input[1] is a number"),
        ({"input": [5, 1.5]}, "input[1] is a number"),
        ({"input": [[5], "ok"]}, "input[1] is a text"),
        ({"input": [[5], []]}, "input[1] is an empty list"),
        ({"input": [[5], ["ok"]]}, "input[1] must hold whole numbers"),
        ({"input": [[5], [1.5]]}, "input[1] must hold whole numbers"),
    ],
)
async def test_wrong_inputs_are_named_by_index(serve, gateway, given, named):
    server = Embedder(serve)
    running = await gateway(one_embedder(server.url, engine="vllm"))
    answer = await ask(running, {"model": "m", **given})
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["param"] == "input"
    assert answer.error["message"].startswith(named)
    assert server.bodies == []
    assert running.counted("forebay_requests_total") == 0
    assert running.breaker("m")["state"] == "closed"


@pytest.mark.parametrize("given", ["   ", ["   ", "t1"], [" \n"], "\u3000", ['\\"t']])
async def test_texts_of_blanks_and_escapes_are_passed_on(serve, gateway, given):
    count = len(given) if isinstance(given, list) else 1
    server = Embedder(serve, lambda _: embeddings({"input": ["t0"] * count}))
    running = await gateway(one_embedder(server.url))
    body = json.dumps({"model": "m", "input": given}).encode()
    assert (await ask(running, body)).status == 200
    assert server.bodies == [body]


async def test_an_unknown_model_comes_before_its_inputs(serve, gateway):
    running = await gateway(one_embedder(Embedder(serve).url))
    answer = await ask(running, {"model": "other"})
    assert (answer.status, answer.error["param"]) == (404, "model")


async def test_a_chat_to_embed_needs_no_input(serve, gateway):
    server = Embedder(serve, lambda _: embeddings({"input": "t1"}))
    running = await gateway(one_embedder(server.url))
    body = b'{"messages": [{"role":"user","content":"hi"}], "model":"m"}'
    assert (await ask(running, body)).status == 200
    assert server.bodies == [body]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([], b""),
        (
            [("Content-Type", "multipart/form-data; boundary=b")],
            b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n',
        ),
    ],
)
async def test_a_request_without_json_has_no_input(serve, gateway, headers, body):
    running = await gateway(one_embedder(Embedder(serve).url))
    async with connected(running.port) as wire:
        answer = await wire.ask("POST", f"{EMBEDDINGS}?model=m", body, headers)
    assert (answer.status, answer.error["param"]) == (400, "input")


class TestTokenIds:
    @pytest.mark.parametrize(("given", "documents"), [([9906, 1917], 1), ([[9906, 1917], [15]], 2)])
    async def test_pass_unchanged_to_an_engine_that_takes_them(
        self, serve, gateway, given, documents
    ):
        answer = embeddings({"input": ["t1", "t2"][:documents]})
        server = Embedder(serve, lambda _: answer)
        running = await gateway(one_embedder(server.url, engine="vllm"))
        body = b'{ "input":%b, "model":"m"}' % json.dumps(given).encode()
        got = await ask(running, body)
        assert got.status == 200
        assert server.bodies == [body]
        assert got.body == answer.partition(b"\r\n\r\n")[2]

    @pytest.mark.parametrize("engine", ["infinity", "tei", "unknown"])
    @pytest.mark.parametrize("given", [[9906, 1917], [[9906, 1917], [15]]])
    async def test_are_refused_for_any_other(self, serve, gateway, engine, given):
        server = Embedder(serve)
        running = await gateway(one_embedder(server.url, engine=engine))
        answer = await ask(running, {"model": "m", "input": given})
        assert (answer.status, answer.error["param"]) == (400, "input")
        assert "send text" in answer.error["message"]
        assert "check_embedding_ctx_length=False" in answer.error["message"]
        assert server.bodies == []

    async def test_an_empty_success_is_none(self, serve, gateway):
        server = Embedder(serve, lambda _: json_response({"object": "list", "data": []}))
        running = await gateway(one_embedder(server.url, engine="vllm"))
        answer = await ask(running, {"model": "m", "input": [[9906, 1917], [15]]})
        assert (answer.status, answer.error["code"]) == (502, "upstream_invalid_response")
        assert running.counted("forebay_requests_total", outcome="failure") == 1


@pytest.mark.parametrize(
    "most",
    [["x"] * 65_536, ["a,b\\", '",' * 200_000], [[1, 2]] * 65_536, [7] * 65_536],
    ids=["texts", "long texts", "token lists", "token ids"],
)
async def test_as_many_inputs_as_there_may_be_are_passed_on(serve, gateway, most):
    server = Embedder(serve, lambda _: json_response({}, status="418 Teapot"))
    running = await gateway(one_embedder(server.url, engine="vllm"))
    assert (await ask(running, {"model": "m", "input": most})).status == 418
    if isinstance(most[0], str):
        assert server.requests[0]["input"] == most


@pytest.mark.parametrize(
    "many",
    [
        ["x"] * 65_537,
        ["\\"] * 65_537,
        [[1]] * 65_537,
        [1] * 65_537,
        ["x", *[1] * 65_537],
        [[1], *[1] * 65_537],
        [None] * 65_537,
        [{}] * 65_537,
    ],
    ids=["texts", "backslashes", "token lists", "token ids", "mixed", "mixed lists", "nulls", "{}"],
)
async def test_too_many_inputs_are_refused(serve, gateway, many):
    server = Embedder(serve)
    running = await gateway(one_embedder(server.url, engine="vllm"))
    answer = await ask(running, {"model": "m", "input": many})
    assert (answer.status, answer.error["param"]) == (400, "input")
    assert server.bodies == []
