"""A real engine that closes the connection after a stream, having announced to keep it."""

from __future__ import annotations

import asyncio
import json

import pytest

pytestmark = pytest.mark.anyio


async def test_streamed_and_plain_answers_in_turn_never_fail(llamacpp_chat, connect):
    upstream = connect(llamacpp_chat.base_url)

    async def ask(stream):
        question = {
            "model": llamacpp_chat.model,
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 4,
            "stream": stream,
        }
        response = await upstream.send(
            b"POST",
            b"/v1/chat/completions",
            [(b"content-type", b"application/json")],
            json.dumps(question).encode(),
            head_timeout_s=30,
        )
        answer = b""
        while piece := await response.read(30):
            answer += piece
        assert response.status == 200
        assert b"[DONE]" in answer if stream else json.loads(answer)["choices"]

    async def user():
        for n in range(25):
            await ask(stream=n % 2 == 0)

    await asyncio.gather(*(user() for _ in range(4)))
    assert upstream.stats().reuses > 0
