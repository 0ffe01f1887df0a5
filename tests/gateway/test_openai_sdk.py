"""OpenAI's own client, as users write it, against the gateway."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack

import anyio
import openai
import pytest

from forebay.emulator.faults import Cut, Html, Reset, Status, StreamError
from support.configs import emulated
from support.waiting import eventually

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "Tell me something."}]
KEYS = {"api_keys": [{"name": "app", "key": "key-of-app"}]}


@pytest.fixture
async def running(host, gateway):
    return await gateway(emulated(host, forebay={**KEYS, "body_limit_bytes": 100_000}))


@pytest.fixture
async def client(running):
    async with openai.AsyncOpenAI(
        base_url=running.base_url, api_key="key-of-app", max_retries=0, timeout=20
    ) as client:
        yield client


async def streamed(client, **more):
    """The chunks of a streamed chat."""
    stream = await client.chat.completions.create(
        model="chat", messages=MESSAGES, stream=True, **more
    )
    return [chunk async for chunk in stream]


async def test_a_chat(client):
    answer = await client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=5)
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens == 5


async def test_a_streamed_chat_with_usage(client):
    chunks = await streamed(client, max_tokens=20, stream_options={"include_usage": True})
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text
    assert chunks[-1].usage.completion_tokens == 20


async def test_the_same_text_streamed_and_whole(client):
    whole = await client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=9)
    pieces = [c.choices[0].delta.content or "" for c in await streamed(client, max_tokens=9)]
    assert "".join(pieces) == whole.choices[0].message.content


async def test_embeddings_in_the_clients_own_encoding_and_as_numbers(client):
    """Without an encoding of the caller's the client asks for base64, and decodes it."""
    texts = ["first", "second", "third"]
    packed = await client.embeddings.create(model="embedding", input=texts)
    plain = await client.embeddings.create(model="embedding", input=texts, encoding_format="float")
    assert [each.index for each in packed.data] == [0, 1, 2]
    for one, other in zip(packed.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)


async def test_models(client):
    assert {model.id async for model in client.models.list()} == {"chat", "embedding"}
    assert (await client.models.retrieve("chat")).id == "chat"


async def test_the_raw_response_tells_where_it_comes_from(client):
    raw = await client.chat.completions.with_raw_response.create(
        model="chat", messages=MESSAGES, max_tokens=2, extra_headers={"x-request-id": "mine"}
    )
    assert raw.headers["x-forebay-endpoint"].startswith("chat@")
    assert raw.request_id == "mine"


async def test_leaving_a_stream_lets_the_endpoint_off(client, running, host):
    for _ in range(10):
        stream = await client.chat.completions.create(
            model="chat", messages=MESSAGES, max_tokens=5000, stream=True
        )
        async for _ in stream:
            break
        await stream.close()
        await eventually(lambda: running.idle, within_s=1)
        await eventually(lambda: host.record()["chat"]["inflight"] == 0, within_s=1)
    assert host.record()["chat"]["aborted"] == 10


async def test_cancelling_a_task_lets_the_endpoint_off(client, running, host):
    with anyio.move_on_after(0.2):
        await client.chat.completions.create(
            model="chat",
            messages=MESSAGES,
            max_tokens=5000,
            extra_body={"ignore_eos": True},
        )
    await eventually(lambda: running.idle, within_s=1)
    await eventually(lambda: host.record()["chat"]["inflight"] == 0, within_s=1)


class TestErrors:
    """Each refusal is the exception that its name promises, with a message to act on."""

    async def test_a_wrong_key(self, running):
        async with openai.AsyncOpenAI(
            base_url=running.base_url, api_key="wrong", max_retries=0
        ) as client:
            with pytest.raises(openai.AuthenticationError, match="API key"):
                await client.models.list()

    async def test_an_unknown_model(self, client):
        with pytest.raises(openai.NotFoundError) as caught:
            await client.chat.completions.create(model="other", messages=MESSAGES)
        assert caught.value.code == "model_not_found"
        assert caught.value.param == "model"

    async def test_a_wrong_request(self, client):
        with pytest.raises(openai.BadRequestError, match="max_tokens"):
            await client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=10**8)

    async def test_a_class_that_may_not_be_asked_for(self, client):
        with pytest.raises(openai.PermissionDeniedError):
            await client.embeddings.create(
                model="embedding", input="x", extra_headers={"x-forebay-priority": "interactive"}
            )

    async def test_a_body_that_is_too_large(self, client):
        with pytest.raises(openai.APIStatusError) as caught:
            await client.embeddings.create(model="embedding", input="x" * 3_000_000)
        assert caught.value.status_code == 413

    async def test_an_endpoint_that_resets(self, client, host):
        host.faults.add(Reset(engine="chat", next=1))
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model="chat", messages=MESSAGES)
        assert caught.value.status_code == 502

    async def test_a_web_page(self, client, host):
        host.faults.add(Html(engine="chat", next=1))
        with pytest.raises(openai.InternalServerError, match="HTML"):
            await client.chat.completions.create(model="chat", messages=MESSAGES)

    async def test_an_endpoint_that_is_busy(self, client, host):
        host.faults.add(Status(engine="chat", status=429, message="too many requests", next=1))
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(model="chat", messages=MESSAGES)
        assert int(caught.value.response.headers["retry-after"]) >= 1

    async def test_a_deadline(self, client):
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(
                model="chat",
                messages=MESSAGES,
                max_tokens=5000,
                extra_body={"ignore_eos": True},
                extra_headers={"x-request-timeout": "0.2"},
            )
        assert caught.value.status_code == 504

    @pytest.mark.parametrize("chunks", [0, 5])
    async def test_an_error_in_a_stream(self, client, host, chunks):
        host.faults.add(StreamError(engine="chat", after_chunks=chunks, next=1))
        with pytest.raises(openai.APIError):
            await streamed(client)

    @pytest.mark.parametrize("clean", [True, False])
    async def test_a_stream_that_is_cut_never_looks_whole(self, client, host, clean):
        host.faults.add(Cut(engine="chat", after_chunks=5, clean=clean, next=1))
        with pytest.raises(openai.APIError):
            await streamed(client)

    async def test_the_client_tries_again_by_itself(self, running, host):
        host.faults.add(Reset(engine="chat", next=2))
        async with openai.AsyncOpenAI(
            base_url=running.base_url, api_key="key-of-app", max_retries=3
        ) as client:
            answer = await client.chat.completions.create(
                model="chat", messages=MESSAGES, max_tokens=2
            )
        assert answer.choices[0].message.content


async def test_the_blocking_client_too(running):
    def talk():
        with openai.OpenAI(
            base_url=running.base_url, api_key="key-of-app", max_retries=0
        ) as client:
            answer = client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=3)
            stream = client.chat.completions.create(
                model="chat", messages=MESSAGES, max_tokens=3, stream=True
            )
            vectors = client.embeddings.create(model="embedding", input=["a", "b"])
            return answer.usage.completion_tokens, len(list(stream)), len(vectors.data)

    tokens, chunks, vectors = await anyio.to_thread.run_sync(talk)
    assert (tokens, vectors) == (3, 2)
    assert chunks >= 3


async def test_many_at_once_get_each_their_own(client, running):
    answers = {}

    async def ask(number):
        prompt = [{"role": "user", "content": f"question {number}"}]
        stream = await client.chat.completions.create(
            model="chat", messages=prompt, max_tokens=12, stream=True
        )
        text = [chunk.choices[0].delta.content or "" async for chunk in stream]
        whole = await client.chat.completions.create(model="chat", messages=prompt, max_tokens=12)
        answers[number] = "".join(text) == whole.choices[0].message.content

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(ask, number)
    assert all(answers.values())
    assert len(answers) == 30
    assert running.idle


async def test_a_client_per_request_leaves_nothing_behind(running):
    threads = threading.active_count()
    async with AsyncExitStack() as stack:
        for _ in range(20):
            client = await stack.enter_async_context(
                openai.AsyncOpenAI(base_url=running.base_url, api_key="key-of-app")
            )
            await client.embeddings.create(model="embedding", input="x")
    assert running.idle
    assert threading.active_count() <= threads + 1
