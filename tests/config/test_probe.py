from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from forebay.config import plan_from
from forebay.config.probe import Probe, probe

pytestmark = pytest.mark.anyio

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SECRET = "the-endpoints-own-key"


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    """A real server on loopback whose every path `handler` answers."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def answer(url: str, *, kind: str = "chat", timeout_s: float = 5.0, **keys: object) -> Probe:
    text = json.dumps({f"{kind}_models": [{"id": "chat", "base_url": url, **keys}]})
    plan = plan_from(text, file="c.json", environ={})
    (found,) = await probe(plan, timeout_s=timeout_s, request_timeout_s=timeout_s)
    return found


def models(*ids: str) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": one} for one in ids]})


def works() -> web.Response:
    return web.json_response({"object": "something"})


async def test_an_endpoint_that_lists_its_model_and_answers_is_well() -> None:
    asked = []

    async def handler(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {SECRET}"
        asked.append(request.raw_path)
        return models("other", "chat") if request.method == "GET" else works()

    async with served(handler) as url:
        found = await answer(f"{url}/v1?version=2", api_key=SECRET)
    assert (found.ok, found.message) == (True, "serves the model")
    assert asked == ["/v1/models?version=2", "/v1/chat/completions?version=2"]


@pytest.mark.parametrize(
    ("kind", "path", "small"),
    [
        ("chat", "/v1/chat/completions", ("max_tokens", 1)),
        ("embedding", "/v1/embeddings", ("input", "Hi")),
        ("rerank", "/v1/rerank", ("documents", ["Hi"])),
    ],
)
async def test_it_is_asked_for_as_little_as_its_kind_of_model_does(
    kind: str, path: str, small: tuple[str, object]
) -> None:
    asked: list[tuple[str, dict[str, object]]] = []

    async def handler(request: web.Request) -> web.Response:
        if request.method == "GET":
            return models("chat")
        asked.append((request.path, await request.json()))
        return works()

    async with served(handler) as url:
        assert (await answer(url, kind=kind)).ok
    ((asked_path, body),) = asked
    assert (asked_path, body["model"]) == (path, "chat")
    assert small in body.items()


def failing(status: int, body: str) -> Handler:
    """As a server whose health and list of models say that all is well."""

    async def handler(request: web.Request) -> web.Response:
        if request.path == "/health":
            return web.json_response({"unix": 1790000000.1})
        if request.method == "GET":
            return models("chat")
        return web.Response(status=status, text=body)

    return handler


@pytest.mark.parametrize(
    ("engine", "status", "body", "said"),
    [
        ("infinity", 500, '{"error":{"message":"CUDA out of memory"}}', "answers 500"),
        ("tei", 424, '{"message":"DriverError","type":"backend"}', "answers 424"),
        ("llamacpp", 503, '{"error":{"message":"Loading model"}}', "loading"),
        ("unknown", 404, "", "configuration"),
        ("unknown", 200, "<html>Sign in", "failure"),
    ],
)
async def test_one_that_only_says_that_it_is_well_is_not(
    engine: str, status: int, body: str, said: str
) -> None:
    async with served(failing(status, body)) as url:
        found = await answer(url, kind="embedding", engine=engine)
    assert not found.ok
    assert found.message.startswith("lists the model, but ")
    assert said in found.message


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (429, "", "is busy now"),
        (503, "queue is full", "is busy now"),
        (400, "no chat template", "answers 400 to a small /chat/completions"),
    ],
)
async def test_one_that_refuses_a_small_request_is_there(status: int, body: str, said: str) -> None:
    async with served(failing(status, body)) as url:
        found = await answer(url)
    assert found.ok
    assert said in found.message


async def test_one_whose_worker_hangs_is_not_well() -> None:
    over = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        if request.method == "POST":
            await over.wait()
        return models("chat")

    async with served(handler) as url:
        found = await answer(url, timeout_s=0.3)
        over.set()
    assert not found.ok
    assert "did not answer /chat/completions within 0.3 s" in found.message


async def test_the_name_of_a_model_may_lack_the_tag_that_ollama_adds() -> None:
    async def handler(request: web.Request) -> web.Response:
        return models("chat:latest") if request.method == "GET" else works()

    async with served(handler) as url:
        assert (await answer(url)).ok


async def test_another_model_is_named() -> None:
    async def handler(_: web.Request) -> web.Response:
        return models("llama")

    async with served(handler) as url:
        found = await answer(url)
    assert not found.ok
    assert found.message == "does not serve 'chat'; it serves: llama"


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_told_without_the_key(status: int) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, text=f"bad key {SECRET}")

    async with served(handler) as url:
        with_key, without = await answer(url, api_key=SECRET), await answer(url)
    assert with_key.message == f"answers, but refuses its api_key ({status})"
    assert without.message == f"answers, but refuses a request without api_key ({status})"


async def test_an_api_at_the_root_is_found_with_the_setting_it_needs() -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/chat/completions":
            return works()
        return models("chat") if request.path == "/models" else web.Response(status=404)

    async with served(handler) as url:
        found = await answer(url)
        assert (await answer(url, api_prefix="")).ok
    assert not found.ok
    assert f"404 at {url}/v1/models, but is at {url}/models" in found.message
    assert 'set "api_prefix": ""' in found.message


async def test_an_engine_that_lists_no_models_need_only_work() -> None:
    async def handler(request: web.Request) -> web.Response:
        return works() if request.path == "/v1/chat/completions" else web.Response(status=404)

    async with served(handler) as url:
        assert (await answer(url)).ok


async def test_being_healthy_is_not_enough() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=200 if request.path == "/health" else 404)

    async with served(handler) as url:
        assert not (await answer(url)).ok


async def test_a_path_that_is_nowhere_is_told_with_both_urls() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=404)

    async with served(handler) as url:
        found = await answer(url)
    assert not found.ok
    assert f"404 at {url}/v1/models and at {url}/models" in found.message


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (503, "", "starts, or is overloaded"),
        (500, "", "answers 500 to http://127.0.0.1:"),
        (302, "", "answers 302"),
        (200, "<html>", "not with a list of models"),
        (200, '{"data": 3}', "not with a list of models"),
        (200, "[]", "not with a list of models"),
    ],
)
async def test_other_answers_are_told(status: int, text: str, said: str) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text, headers={"Location": "/elsewhere"})

    async with served(handler) as url:
        found = await answer(url)
    assert not found.ok
    assert said in found.message


async def test_a_refused_connection_is_told() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response()

    async with served(handler) as url:
        pass
    found = await answer(f"{url}/v1?code={SECRET}")
    assert not found.ok
    assert "not reachable (" in found.message
    assert SECRET not in found.message


async def test_silence_is_told() -> None:
    # The kernel completes connections that nobody ever accepts.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = await answer(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.2)
    assert (found.ok, found.message) == (False, "no answer in time")
