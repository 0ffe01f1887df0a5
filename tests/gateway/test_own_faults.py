"""Faults of the gateway itself: the client is told, the log says why, and nothing is held."""

from __future__ import annotations

import pytest

from support.configs import one_chat
from support.endpoint import Endpoint
from support.http_responses import json_response
from support.wire import connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m"}'


async def test_an_answer_with_a_header_of_two_lines_is_a_failure_of_the_gateways_own(
    serve, gateway, monkeypatch, caplog
):
    monkeypatch.setattr(
        "forebay.proxy.headers.Received.to_client",
        lambda *_args, **_more: [(b"a", b"b\r\nc: d"), (b"content-length", b"11")],
    )
    running = await gateway(one_chat(Endpoint(serve, json_response({"ok": True})).url))
    async with connected(running.port) as wire:
        for _ in range(2):
            answer = await wire.ask("POST", CHAT, BODY)
            assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert "line break" in caplog.text
    assert running.idle


async def test_a_fault_before_a_slot_was_asked_for_is_told_and_logged(
    serve, gateway, monkeypatch, caplog
):
    monkeypatch.setattr("forebay.proxy.proxy.Proxy._named", None)
    running = await gateway(one_chat(Endpoint(serve).url))
    async with connected(running.port) as wire:
        for _ in range(2):
            answer = await wire.ask("POST", CHAT, BODY)
            assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert "Traceback" in caplog.text
