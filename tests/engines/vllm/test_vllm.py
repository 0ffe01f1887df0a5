"""The gateway in front of real vLLM."""

from __future__ import annotations

import aiohttp
import anyio
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "once upon a time"}]
LONG = {"max_tokens": 3900, "extra_body": {"ignore_eos": True}}
WITHIN_S = 20


@pytest.fixture
def gateway(vllm, start_gateway):
    """It lets twice as many through as vLLM runs at once, so that vLLM itself must queue."""
    entry = {"id": vllm.model, "base_url": vllm.base_url, "gpu_group": "gpu"}
    entry |= {"max_parallel_calls": 2, "max_concurrent_requests": 16}
    return start_gateway(
        {"chat_models": [entry], "forebay": {"limit": "fixed", "scrape_interval_s": 0.2}}
    )


@pytest.fixture
async def client(gateway):
    async with openai.AsyncOpenAI(
        base_url=gateway.base_url, api_key="unused", max_retries=0, timeout=120
    ) as client:
        yield client


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


async def gauge(http, vllm, name):
    async with http.get(f"{vllm.root}/metrics") as response:
        text = await response.text()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    )


async def endpoint(http, gateway):
    async with http.get(f"{gateway.url}/forebay/status") as response:
        (only,) = (await response.json())["endpoints"].values()
    return only


async def until(condition):
    with anyio.fail_after(WITHIN_S):
        while not await condition():  # noqa: ASYNC110 - another process counts
            await anyio.sleep(0.05)


async def test_a_chat_whole_and_streamed(client):
    whole = await client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=16, temperature=0
    )
    assert whole.usage.completion_tokens <= 16
    stream = await client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        max_tokens=16,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


async def test_its_metrics_are_read(client, http, gateway):
    await client.completions.create(model="tiny", prompt="once", max_tokens=2)

    async def is_read():
        return (await endpoint(http, gateway))["signal"] is not None

    await until(is_read)
    seen = await endpoint(http, gateway)
    assert seen["engine"] == "vllm"
    assert seen["signal"]["running"] == 0
    assert seen["signal_failure"] is None


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_aborts_its_sequence(client, http, vllm, gateway, stream):
    seen = []

    async def is_running():
        seen.append(await gauge(http, vllm, "vllm:num_requests_running"))
        return seen[-1] >= 1

    async def is_idle():
        running = await gauge(http, vllm, "vllm:num_requests_running")
        return running == 0 and (await endpoint(http, gateway))["inflight"] == 0

    for _ in range(3):
        async with anyio.create_task_group() as tasks:

            async def ask():
                answer = await client.chat.completions.create(
                    model="tiny", messages=MESSAGES, stream=stream, **LONG
                )
                if stream:
                    async for _ in answer:
                        pass
                pytest.fail(f"it was answered in full before its client could leave; {seen}")

            tasks.start_soon(ask)
            await until(is_running)
            tasks.cancel_scope.cancel()
        await until(is_idle)


async def test_what_it_queues_is_seen(client, http, gateway):
    async def signal():
        return (await endpoint(http, gateway))["signal"] or {"running": 0, "waiting": 0}

    async def all_run():
        return (await signal())["running"] == 8

    async def some_wait():
        return (await signal())["waiting"] == 3

    async with anyio.create_task_group() as tasks:

        async def ask():
            await client.chat.completions.create(model="tiny", messages=MESSAGES, **LONG)

        for _ in range(8):
            tasks.start_soon(ask)
        await until(all_run)
        for _ in range(3):
            tasks.start_soon(ask)
        await until(some_wait)
        assert (await endpoint(http, gateway))["signal"]["saturated"]
        tasks.cancel_scope.cancel()

    async def is_idle():
        return (await endpoint(http, gateway))["inflight"] == 0

    await until(is_idle)


async def test_what_its_own_queue_refuses_is_congestion_and_no_failure(client, http, gateway):
    outcomes, waits = [], []
    async with anyio.create_task_group() as tasks:

        async def ask():
            try:
                await client.chat.completions.create(
                    model="tiny", messages=MESSAGES, max_tokens=600, extra_body={"ignore_eos": True}
                )
                outcomes.append(200)
            except openai.APIStatusError as error:
                outcomes.append(error.status_code)
                waits.append(int(error.response.headers["retry-after"]))

        for _ in range(16):
            tasks.start_soon(ask)
    assert set(outcomes) == {200, 503}
    assert outcomes.count(200) >= 4
    assert min(waits) >= 1
    seen = await endpoint(http, gateway)
    assert (seen["breaker"]["state"], seen["breaker"]["failures"]) == ("closed", 0)
    async with http.get(f"{gateway.url}/metrics") as response:
        assert 'outcome="congestion"' in await response.text()


async def test_a_prompt_that_is_too_long_is_the_clients_error(client, http, gateway):
    for _ in range(5):
        with pytest.raises(openai.BadRequestError):
            await client.completions.create(model="tiny", prompt="word " * 5000, max_tokens=5)
    assert (await endpoint(http, gateway))["breaker"]["failures"] == 0
