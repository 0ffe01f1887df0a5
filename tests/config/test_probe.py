from __future__ import annotations

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


async def answer(url: str, *, timeout_s: float = 5.0, **keys: object) -> Probe:
    text = json.dumps({"chat_models": [{"id": "chat", "base_url": url, **keys}]})
    (found,) = await probe(plan_from(text, file="c.json", environ={}), timeout_s=timeout_s)
    return found


def models(*ids: str) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": one} for one in ids]})


async def test_an_endpoint_that_serves_its_model_is_well() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.raw_path == "/v1/models?version=2"
        assert request.headers["Authorization"] == f"Bearer {SECRET}"
        return models("other", "chat")

    async with served(handler) as url:
        found = await answer(f"{url}/v1?version=2", api_key=SECRET)
    assert (found.ok, found.message) == (True, "serves the model")


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
        return models("chat") if request.path == "/models" else web.Response(status=404)

    async with served(handler) as url:
        found = await answer(url)
        assert (await answer(url, api_prefix="")).ok
    assert not found.ok
    assert f"404 at {url}/v1/models, but is at {url}/models" in found.message
    assert 'set "api_prefix": ""' in found.message


async def test_an_engine_that_lists_no_models_need_only_be_healthy() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=200 if request.path == "/health" else 404)

    async with served(handler) as url:
        assert (await answer(url)).ok


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
