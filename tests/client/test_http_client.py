"""OpenAI's own clients, and httpx itself, governed in the process by a session."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import ExitStack

import anyio
import httpx
import httpx2
import openai
import pytest

import forebay
from forebay.client.http.reply import BrokenOff, Reply
from forebay.emulator.faults import Cut, Hang, Reset, Status
from support.configs import emulated, one_chat
from support.flaky import Flaky, failing_over
from support.sessions import inflight
from support.waiting import eventually

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "Tell me something."}]
ENDLESS = {"max_tokens": 5000, "extra_body": {"ignore_eos": True}}


@pytest.fixture
async def fb(host, write):
    async with forebay.open(write(emulated(host, forebay={"body_limit_bytes": 100_000}))) as fb:
        yield fb
        await eventually(lambda: inflight(fb) == 0, within_s=1)


@pytest.fixture
def client(fb):
    return openai.AsyncOpenAI(api_key="-", http_client=fb.http_client(), max_retries=0)


@pytest.fixture
def fb_sync(host, write):
    with forebay.open_sync(write(emulated(host))) as fb:
        yield fb


def client_sync(fb):
    return openai.OpenAI(api_key="-", http_client=fb.http_client_sync(), max_retries=0)


async def streamed(client, **more):
    stream = await client.chat.completions.create(
        model="chat", messages=MESSAGES, stream=True, **more
    )
    return [chunk async for chunk in stream]


async def test_whatever_the_gateway_answers(client, host) -> None:
    answer = await client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=9)
    pieces = [
        chunk.choices[0].delta.content or "" for chunk in await streamed(client, max_tokens=9)
    ]
    assert answer.choices[0].message.content == "".join(pieces) != ""
    vectors = await client.embeddings.create(model="embedding", input=["a", "b", "c"])
    assert [each.index for each in vectors.data] == [0, 1, 2]
    assert {model.id async for model in client.models.list()} == {"chat", "embedding"}
    assert (await client.models.retrieve("chat")).id == "chat"
    assert host.record()["chat"]["requests"] == 2


async def test_a_request_shows_where_it_was_served(client) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model="chat", messages=MESSAGES, max_tokens=2, extra_headers={"x-request-id": "mine"}
    )
    assert raw.headers["x-forebay-endpoint"].startswith("chat@")
    assert raw.request_id == "mine"


class TestStreams:
    async def test_one_holds_its_slot_until_it_is_closed(self, fb, client, host) -> None:
        stream = await client.chat.completions.create(
            model="chat", messages=MESSAGES, stream=True, **ENDLESS
        )
        async for _ in stream:
            break
        assert inflight(fb) == 1
        await stream.close()
        await eventually(lambda: inflight(fb) == 0, within_s=1)
        await eventually(lambda: host.record()["chat"]["inflight"] == 0, within_s=1)

    async def test_one_that_is_forgotten_gives_its_slot_back(self, fb, client) -> None:
        stream = await client.chat.completions.create(
            model="chat", messages=MESSAGES, stream=True, **ENDLESS
        )
        assert inflight(fb) == 1
        del stream
        gc.collect()
        await eventually(lambda: inflight(fb) == 0, within_s=1)

    async def test_one_that_nobody_reads_waits_with_little_in_memory(self, write, serve) -> None:
        sent = 0

        async def script(peer):
            nonlocal sent
            await peer.request()
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n\r\n")
            for _ in range(2000):
                await peer.send(b"x" * 16384)
                sent += 16384
            peer.close()

        async with forebay.open(write(one_chat(serve(script).url))) as fb:
            http = fb.http_client()
            async with http.stream("POST", "/chat/completions", json={"model": "m"}) as answer:
                await anyio.sleep(0.5)
                assert sent < 2000 * 16384
                assert len(await answer.aread()) == 2000 * 16384

    async def test_a_cut_one_never_looks_whole(self, client, host) -> None:
        for clean in (True, False):
            host.faults.add(Cut(engine="chat", after_chunks=5, clean=clean, next=1))
            with pytest.raises(openai.APIError):
                await streamed(client)


async def test_a_cancelled_request_gives_its_slot_back(fb, client, host) -> None:
    with anyio.move_on_after(0.2):
        await client.chat.completions.create(model="chat", messages=MESSAGES, **ENDLESS)
    await eventually(lambda: inflight(fb) == 0, within_s=1)
    await eventually(lambda: host.record()["chat"]["inflight"] == 0, within_s=1)


async def test_requests_wait_for_slots_like_everything_else_in_the_session(host, write) -> None:
    config = emulated(host)
    config["chat_models"][0]["max_concurrent_requests"] = 2
    async with forebay.open(write(config)) as fb:
        client = openai.AsyncOpenAI(api_key="-", http_client=fb.http_client())
        async with fb.slot("chat"), anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(streamed, client)
            await eventually(lambda: inflight(fb) == 2)
        assert host.record()["chat"]["max_inflight"] == 1


async def test_the_fallback_answers_and_nobody_notices(serve, write) -> None:
    primary, fallback = Flaky(serve), Flaky(serve)
    async with forebay.open(write(failing_over(f"{primary.url}/v1", f"{fallback.url}/v1"))) as fb:
        client = openai.AsyncOpenAI(api_key="-", http_client=fb.http_client(), max_retries=0)
        primary.mode = "reset"
        for _ in range(20):
            await client.embeddings.create(model="m", input=["t1"])
        assert fb.embedding_endpoint_status()["is_fallback"]
        primary.mode = "ok"
        await anyio.sleep(0.4)
        before = len(fallback.requests)
        for _ in range(20):
            await client.embeddings.create(model="m", input=["t1"])
        assert not fb.embedding_endpoint_status()["is_fallback"]
        assert len(fallback.requests) - before < 20


async def test_best_effort_requests_yield(fb) -> None:
    client = openai.AsyncOpenAI(
        api_key="-", http_client=fb.http_client(priority="best-effort"), max_retries=0
    )
    stream = await client.chat.completions.create(
        model="chat", messages=MESSAGES, stream=True, **ENDLESS
    )
    members = fb.status()["groups"]["gpu"]["members"].values()
    assert sum(counts["best_effort"] for counts in members) == 1
    await stream.close()


class TestErrors:
    """Each is the exception that the client's own documentation names."""

    async def test_an_unknown_model(self, client) -> None:
        with pytest.raises(openai.NotFoundError, match="configured: 'chat', 'embedding'"):
            await client.chat.completions.create(model="gpt-5", messages=MESSAGES)

    async def test_an_endpoint_that_is_busy(self, client, host) -> None:
        host.faults.add(Status(engine="chat", status=429, message="too many requests", next=1))
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(model="chat", messages=MESSAGES)
        assert int(caught.value.response.headers["retry-after"]) >= 1

    async def test_an_endpoint_that_resets(self, client, host) -> None:
        host.faults.add(Reset(engine="chat", next=1))
        with pytest.raises(openai.InternalServerError, match="chat@"):
            await client.chat.completions.create(model="chat", messages=MESSAGES)

    async def test_a_body_that_is_too_large(self, client) -> None:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.embeddings.create(model="embedding", input="x" * 200_000)
        assert caught.value.status_code == 413

    async def test_a_base_url_without_the_api(self, fb) -> None:
        client = openai.AsyncOpenAI(
            base_url="http://forebay/", api_key="-", http_client=fb.http_client(), max_retries=0
        )
        with pytest.raises(openai.NotFoundError, match="ends with it"):
            await client.chat.completions.create(model="chat", messages=MESSAGES)

    async def test_a_path_out_of_the_api(self, fb) -> None:
        answer = await fb.http_client().post(
            "http://forebay/v1/%2e%2e/sleep", json={"model": "chat"}
        )
        assert answer.status_code == 400

    async def test_a_timeout_of_the_client(self, fb, host) -> None:
        host.faults.add(Hang(engine="chat"))
        http = fb.http_client(timeout=0.2)
        with pytest.raises(httpx2.ReadTimeout, match=r"nothing came for 0\.2 s"):
            await http.post("/chat/completions", json={"model": "chat", "messages": MESSAGES})
        client = openai.AsyncOpenAI(api_key="-", http_client=http, max_retries=0)
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(model="chat", messages=MESSAGES)
        await eventually(lambda: inflight(fb) == 0, within_s=1)

    async def test_blocking_the_loop_that_would_answer(self, fb) -> None:
        with pytest.raises(forebay.UsageError, match="open_sync"):
            fb.http_client_sync().get("/models")

    async def test_a_priority_or_library_that_there_is_not(self, fb) -> None:
        with pytest.raises(ValueError, match="'best-effort' or None"):
            fb.http_client(priority="high")
        for timeout in (0, -1, float("nan"), "x"):
            with pytest.raises(ValueError, match="seconds above 0, or None"):
                fb.http_client(timeout=timeout)
        with pytest.raises(ValueError, match="'httpx', 'httpx2' or None"):
            fb.http_client_sync(library="requests")

    async def test_a_closed_session(self, host, write) -> None:
        async with forebay.open(write(emulated(host))) as fb:
            http = fb.http_client()
        for ask in (fb.http_client, fb.http_client_sync):
            with pytest.raises(forebay.UsageError, match="closed"):
                ask()
        with pytest.raises(forebay.UsageError, match="closed"):
            await http.get("/models")


async def test_closing_the_session_ends_what_is_under_way_with_an_error(host, write) -> None:
    async with forebay.open(write(emulated(host))) as fb:
        client = openai.AsyncOpenAI(api_key="-", http_client=fb.http_client(), max_retries=0)
        stream = await client.chat.completions.create(
            model="chat", messages=MESSAGES, stream=True, **ENDLESS
        )
    with pytest.raises(openai.APIConnectionError) as caught:
        async for _ in stream:
            pass
    assert str(caught.value.__cause__) == "the session was closed"


async def test_closing_it_before_a_request_has_taken_its_first_step_ends_that_too(
    host, write
) -> None:
    async with forebay.open(write(emulated(host))) as fb:
        request = asyncio.create_task(fb.http_client().get("/models"))
        for _ in range(2):
            await asyncio.sleep(0)
    with pytest.raises((httpx2.RemoteProtocolError, forebay.UsageError)):
        await asyncio.wait_for(request, 5)


def test_a_loop_that_is_closed_over_a_request_leaves_no_reader_waiting() -> None:
    loop = asyncio.new_event_loop()
    reply, heard = Reply(loop), []

    def read() -> None:
        with pytest.raises(BrokenOff) as caught:
            reply.read_sync(None)
        heard.append(str(caught.value))

    thread = threading.Thread(target=read)
    thread.start()
    loop.close()
    thread.join(5)
    assert heard == ["the event loop of the session is closed"]


async def test_another_loop_may_use_it(fb) -> None:
    """Its answers are made in the session's loop, and read in that of the client."""

    async def ask() -> int:
        client = openai.AsyncOpenAI(api_key="-", http_client=fb.http_client(), max_retries=0)
        return len(await streamed(client, max_tokens=50))

    assert await anyio.to_thread.run_sync(asyncio.run, ask()) >= 50


class TestThreads:
    async def test_the_blocking_client(self, fb_sync) -> None:
        def talk():
            client = client_sync(fb_sync)
            answer = client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=3)
            stream = client.chat.completions.create(
                model="chat", messages=MESSAGES, max_tokens=3, stream=True
            )
            vectors = client.embeddings.create(model="embedding", input=["a", "b"])
            return answer.usage.completion_tokens, len(list(stream)), len(vectors.data)

        tokens, chunks, vectors = await anyio.to_thread.run_sync(talk)
        assert (tokens, vectors) == (3, 2)
        assert chunks >= 3

    async def test_many_at_once_get_each_their_own(self, fb_sync) -> None:
        client, answers = client_sync(fb_sync), {}

        def ask(number):
            prompt = [{"role": "user", "content": f"question {number}"}]
            parts = client.chat.completions.create(
                model="chat", messages=prompt, max_tokens=12, stream=True
            )
            text = "".join(chunk.choices[0].delta.content or "" for chunk in parts)
            whole = client.chat.completions.create(model="chat", messages=prompt, max_tokens=12)
            answers[number] = text == whole.choices[0].message.content

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        await anyio.to_thread.run_sync(lambda: [thread.join() for thread in threads])
        assert len(answers) == 20
        assert all(answers.values())
        assert inflight(fb_sync) == 0

    async def test_leaving_a_stream_lets_the_endpoint_off(self, fb_sync, host) -> None:
        def leave():
            client = client_sync(fb_sync)
            with client.chat.completions.create(
                model="chat", messages=MESSAGES, stream=True, **ENDLESS
            ) as stream:
                next(iter(stream))

        await anyio.to_thread.run_sync(leave)
        await eventually(lambda: inflight(fb_sync) == 0, within_s=1)
        await eventually(lambda: host.record()["chat"]["inflight"] == 0, within_s=1)

    async def test_a_timeout_of_the_client(self, fb_sync, host) -> None:
        host.faults.add(Hang(engine="chat"))

        def ask():
            http = fb_sync.http_client_sync(timeout=0.2)
            http.post("/chat/completions", json={"model": "chat", "messages": MESSAGES})

        with pytest.raises(httpx2.ReadTimeout):
            await anyio.to_thread.run_sync(ask)
        await eventually(lambda: inflight(fb_sync) == 0, within_s=1)


class TestLibraries:
    """httpx and httpx2 have classes of the same names, and neither takes the other's."""

    @pytest.mark.parametrize("library", [httpx, httpx2])
    async def test_the_one_that_is_asked_for(self, fb, library) -> None:
        async with fb.http_client(library=library.__name__) as http:
            assert isinstance(http, library.AsyncClient)
            answer = await http.get("/models")
            assert {model["id"] for model in answer.json()["data"]} == {"chat", "embedding"}
        with ExitStack() as stack:
            http = stack.enter_context(fb.http_client_sync(library=library.__name__))
            assert isinstance(http, library.Client)
            answer = await anyio.to_thread.run_sync(http.get, "/models")
            assert answer.status_code == 200

    async def test_else_that_of_the_installed_openai(self, fb) -> None:
        expected = type(openai.AsyncOpenAI(api_key="-")._client).__mro__
        assert type(fb.http_client()) in expected

    async def test_a_proxy_in_the_environment_is_not_asked(self, fb, monkeypatch) -> None:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
        assert (await fb.http_client().get("/models")).status_code == 200
