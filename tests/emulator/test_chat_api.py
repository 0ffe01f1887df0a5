from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import openai
import pytest

from forebay.emulator.text import count_tokens
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from forebay.emulator import Host

pytestmark = pytest.mark.anyio
HELLO = [{"role": "user", "content": "hello, is anyone there?"}]


@pytest.fixture
async def client(host: Host) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=host.chat_url, api_key="-", max_retries=0) as client:
        yield client


async def test_a_chat_is_answered_with_as_many_tokens_as_asked(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=12)
    choice = answer.choices[0]
    assert choice.finish_reason == "length"
    assert count_tokens(choice.message.content) == answer.usage.completion_tokens == 12
    assert answer.usage.prompt_tokens == len(HELLO[0]["content"]) // 4
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


async def test_a_stream_says_the_same_one_token_a_chunk(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=12)
    stream = await client.chat.completions.create(
        model="chat",
        messages=HELLO,
        max_tokens=12,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    role, *tokens, usage = chunks
    assert role.choices[0].delta.role == "assistant"
    assert len(tokens) == 12
    text = "".join(chunk.choices[0].delta.content for chunk in tokens)
    assert text == whole.choices[0].message.content
    reasons = [chunk.choices[0].finish_reason for chunk in tokens]
    assert reasons == [None] * 11 + ["length"]
    assert usage.choices == []
    assert usage.usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1


async def test_usage_is_streamed_only_when_asked_for(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="chat", messages=HELLO, max_tokens=2, stream=True
    )
    assert [chunk.usage async for chunk in stream] == [None] * 3


async def test_texts_end_by_themselves_unless_told_to_go_on(client: openai.AsyncOpenAI) -> None:
    natural = await client.chat.completions.create(model="chat", messages=HELLO)
    assert natural.choices[0].finish_reason == "stop"
    assert 128 <= natural.usage.completion_tokens <= 384
    forced = await client.chat.completions.create(
        model="chat", messages=HELLO, max_tokens=400, extra_body={"ignore_eos": True}
    )
    assert forced.usage.completion_tokens == 400


async def test_ids_are_unique(client: openai.AsyncOpenAI) -> None:
    answers = await asyncio.gather(
        *(
            client.chat.completions.create(model="chat", messages=HELLO, max_tokens=1)
            for _ in range(5)
        )
    )
    assert len({answer.id for answer in answers}) == 5


@pytest.mark.parametrize("prompt", ["a prompt of text", ["a prompt of text"], [1, 2, 3, 4]])
async def test_completions_take_a_text_or_token_ids(
    client: openai.AsyncOpenAI, prompt: object
) -> None:
    answer = await client.completions.create(model="chat", prompt=prompt, max_tokens=3)
    assert answer.usage.prompt_tokens == 4
    assert count_tokens(answer.choices[0].text) == 3
    stream = await client.completions.create(model="chat", prompt=prompt, max_tokens=3, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == answer.choices[0].text


@pytest.mark.parametrize("prompt", [[], ["one", "two"], ["one", 2]])
async def test_completions_of_several_prompts_are_refused(
    client: openai.AsyncOpenAI, prompt: object
) -> None:
    with pytest.raises(openai.BadRequestError, match="one text or its token ids"):
        await client.completions.create(model="chat", prompt=prompt)


async def test_messages_may_come_in_parts(client: openai.AsyncOpenAI) -> None:
    parts = [{"type": "text", "text": "hello, is "}, {"type": "text", "text": "anyone there?"}]
    answers = [
        await client.chat.completions.create(model="chat", messages=messages, max_tokens=4)
        for messages in (HELLO, [{"role": "user", "content": parts}])
    ]
    assert answers[0].choices == answers[1].choices


async def test_each_token_leaves_when_it_is_generated(
    host: Host, http: aiohttp.ClientSession
) -> None:
    body = {"model": "chat", "messages": HELLO, "max_tokens": 30, "stream": True}
    started = time.monotonic()
    async with http.post(f"{host.chat_url}/chat/completions", json=body) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        events = [
            (time.monotonic() - started, line) async for line in response.content if line.strip()
        ]
    tokens = events[1:-1]
    assert events[-1][1] == b"data: [DONE]\n"
    assert all(json.loads(line.removeprefix(b"data: ")) for _, line in tokens)
    # No token is sent before its step is over.
    assert all(at >= 0.0052 + i * 0.0012 for i, (at, _) in enumerate(tokens))


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"model": "other"}, 404),
        ({"messages": []}, 400),
        ({"messages": None}, 400),
        ({"max_tokens": 0}, 400),
        ({"max_tokens": 9000}, 400),
        ({"max_completion_tokens": 9000}, 400),
        ({"n": 2}, 400),
    ],
)
async def test_wrong_requests_are_refused_as_vllm_does(
    host: Host, http: aiohttp.ClientSession, change: dict[str, Any], status: int
) -> None:
    body = {"model": "chat", "messages": HELLO, "stream": True, **change}
    async with http.post(f"{host.chat_url}/chat/completions", json=body) as response:
        assert response.status == status
        assert (await response.json())["error"]["code"] == status
    assert host.record()["chat"]["refused"] == 1
    assert host.record()["gpu"]["inflight"] == 0


async def test_a_body_that_is_not_json_is_refused(host: Host, http: aiohttp.ClientSession) -> None:
    async with http.post(f"{host.chat_url}/chat/completions", data=b'{"model": ') as response:
        assert response.status == 400


async def test_the_model_and_the_health_are_told(host: Host, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{host.chat_url}/models") as response:
        model = (await response.json())["data"][0]
        assert (model["id"], model["max_model_len"]) == ("chat", 8192)
    async with http.get(f"{host.control_url}/health") as response:
        assert (response.status, await response.read()) == (200, b"")


async def test_metrics_tell_what_runs_and_waits(host: Host, http: aiohttp.ClientSession) -> None:
    body = {"model": "chat", "messages": HELLO, "max_tokens": 2000, "ignore_eos": True}

    async def chat() -> None:
        async with http.post(f"{host.chat_url}/chat/completions", json=body) as response:
            await response.read()

    chats = [asyncio.create_task(chat()) for _ in range(66)]
    await eventually(lambda: host.record()["chat"]["engine"]["sequences_waiting"] == 2)
    metrics = await scrape(host, http)
    label = '{engine="0",model_name="chat"}'
    assert metrics[f"vllm:num_requests_running{label}"] == 64
    assert metrics[f"vllm:num_requests_waiting{label}"] == 2
    by_reason = 'vllm:num_requests_waiting_by_reason{engine="0",model_name="chat",reason="%s"}'
    assert metrics[by_reason % "capacity"] == 2
    assert metrics[by_reason % "deferred"] == 0
    assert 0 < metrics[f"vllm:kv_cache_usage_perc{label}"] <= 1
    for task in chats:
        task.cancel()
    await asyncio.gather(*chats, return_exceptions=True)


async def test_metrics_count_tokens_and_first_tokens(
    host: Host, http: aiohttp.ClientSession
) -> None:
    body = {"model": "chat", "messages": HELLO, "max_tokens": 7}
    async with http.post(f"{host.chat_url}/chat/completions", json=body) as response:
        await response.read()
    metrics = await scrape(host, http)
    label = '{engine="0",model_name="chat"}'
    assert metrics[f"vllm:prompt_tokens_total{label}"] == 5
    assert metrics[f"vllm:generation_tokens_total{label}"] == 7
    assert metrics[f"vllm:num_preemptions_total{label}"] == 0
    assert metrics[f"vllm:time_to_first_token_seconds_count{label}"] == 1
    assert metrics[f"vllm:time_to_first_token_seconds_sum{label}"] == pytest.approx(
        0.0052, rel=0.01
    )
    assert metrics[f"vllm:inter_token_latency_seconds_count{label}"] == 6


async def scrape(host: Host, http: aiohttp.ClientSession) -> dict[str, float]:
    async with http.get(f"{host.control_url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"
    }
