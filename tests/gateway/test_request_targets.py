"""Request targets in every form that HTTP has (RFC 9112 section 3.2)."""

from __future__ import annotations

import pytest

from support.configs import one_chat
from support.endpoint import Endpoint
from support.http_responses import json_response
from support.wire import connected

pytestmark = pytest.mark.anyio

BODY = b'{"model":"m"}'


async def ask(running, target):
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (target, len(BODY))
    async with connected(running.port) as wire:
        await wire.write(head + BODY)
        return await wire.answer()


@pytest.mark.parametrize(
    ("target", "seen"),
    [
        (b"/v1/chat/completions", "/v1/chat/completions"),
        (b"/v1/chat/completions?a=b?c", "/v1/chat/completions?a=b?c"),
        (b"/v1/chat/completions#part", "/v1/chat/completions"),
        (b"http://gateway/v1/chat/completions?a=b", "/v1/chat/completions?a=b"),
        (b"/v1/chat%2Fcompletions", "/v1/chat%2Fcompletions"),
    ],
)
async def test_it_goes_to_the_endpoint_as_path_and_query(serve, gateway, target, seen):
    endpoint = Endpoint(serve, json_response({"ok": True}))
    running = await gateway(one_chat(endpoint.url))
    assert (await ask(running, target)).json == {"ok": True}
    assert endpoint.requests[0].split()[1] == seen.encode()


@pytest.mark.parametrize("target", [b"http://gateway", b"x", b"?model=m"])
async def test_what_has_no_path_is_400(serve, gateway, target):
    endpoint = Endpoint(serve, json_response({"ok": True}))
    running = await gateway(one_chat(endpoint.url))
    assert (await ask(running, target)).status == 400
    assert endpoint.requests == []


@pytest.mark.parametrize("target", [b"/v1/../sleep", b"/v1/%2e%2e/sleep", b"/v1/.%2E/sleep"])
async def test_none_leads_out_of_the_api(serve, gateway, target):
    endpoint = Endpoint(serve, json_response({"ok": True}))
    running = await gateway(one_chat(endpoint.url))
    answer = await ask(running, target)
    assert (answer.status, answer.error["code"]) == (400, "invalid_path")
    assert endpoint.requests == []
