"""What the block of a slot raises says something of the endpoint, or nothing."""

from __future__ import annotations

import asyncio
import errno
import ssl

import aiohttp
import httpx2
import openai
import pytest

import forebay
from forebay.adapters.engines.infinity import Infinity
from forebay.adapters.engines.llamacpp import LlamaCpp
from forebay.adapters.engines.unknown import Unknown
from forebay.adapters.engines.vllm import Vllm
from forebay.client.ending import ending_of
from forebay.core.model import Outcome
from forebay.emulator import Cut, EngineName, Hang, Reset, Status, StreamError
from forebay.errors import PoolExhausted, UpstreamError, UpstreamTimeout
from support.configs import emulated
from support.http_responses import json_response
from support.scripted import Server

EMBEDDING = EngineName.EMBEDDING


def outcome(error: BaseException) -> Outcome:
    return ending_of(error, Unknown()).outcome


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


class WithStatus(Exception):  # noqa: N818
    def __init__(self, status: object, headers: object = None) -> None:
        super().__init__(f"status {status}")
        self.status_code = status
        self.headers = headers


def of_httpx(name: str) -> Exception:
    """An error of a package that need not be installed."""
    base = type("TransportError", (Exception,), {"__module__": "httpx._exceptions"})
    return type(name, (base,), {"__module__": "httpx._exceptions"})()


def of_requests(*names: str) -> Exception:
    """An error of that package, all of which are OSErrors, and so do not tell what they are."""
    base: type = OSError
    for name in reversed(names):
        base = type(name, (base,), {"__module__": "requests.exceptions"})
    return base()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (of_httpx("ReadError"), Outcome.FAILURE),
        (of_requests("ReadTimeout", "Timeout"), Outcome.TIMEOUT),
        (of_requests("MissingSchema"), Outcome.CLIENT_ERROR),
        (of_requests("ConnectionError"), Outcome.FAILURE),
        (of_httpx("PoolTimeout"), Outcome.CLIENT_ERROR),
        (asyncio.CancelledError(), Outcome.CANCELLED),
        (GeneratorExit(), Outcome.CANCELLED),
        (KeyboardInterrupt(), Outcome.CANCELLED),
        (TimeoutError(), Outcome.TIMEOUT),
        (UpstreamTimeout("slow"), Outcome.TIMEOUT),
        (UpstreamError("broken"), Outcome.FAILURE),
        (ConnectionRefusedError(), Outcome.FAILURE),
        (OSError("Multiple exceptions: [Errno 111] …"), Outcome.FAILURE),
        (ssl.SSLError("bad certificate"), Outcome.FAILURE),
        (asyncio.IncompleteReadError(b"", 1), Outcome.FAILURE),
        (httpx2.PoolTimeout("no connection left here"), Outcome.CLIENT_ERROR),
        (httpx2.UnsupportedProtocol("ftp"), Outcome.CLIENT_ERROR),
        (httpx2.RemoteProtocolError("server disconnected"), Outcome.FAILURE),
        (aiohttp.ServerDisconnectedError(), Outcome.FAILURE),
        (aiohttp.ClientPayloadError("cut short"), Outcome.FAILURE),
        (aiohttp.ServerTimeoutError(), Outcome.TIMEOUT),
        (PoolExhausted("none left"), Outcome.CLIENT_ERROR),
        (FileNotFoundError("corpus.txt"), Outcome.CLIENT_ERROR),
        (OSError(errno.EMFILE, "too many open files"), Outcome.CLIENT_ERROR),
        (ValueError("the caller's own"), Outcome.CLIENT_ERROR),
        (forebay.Rejected("deadline", "no slot"), Outcome.CLIENT_ERROR),
        (caused(ValueError(), ConnectionError()), Outcome.FAILURE),
        (caused(ValueError(), TypeError()), Outcome.CLIENT_ERROR),
        (ExceptionGroup("", [ValueError(), ConnectionError()]), Outcome.FAILURE),
        (ExceptionGroup("", [ValueError(), TypeError()]), Outcome.CLIENT_ERROR),
        (WithStatus(429), Outcome.CONGESTION),
        (WithStatus(503, {"Retry-After": "3"}), Outcome.CONGESTION),
        (WithStatus(500), Outcome.FAILURE),
        (WithStatus(400), Outcome.CLIENT_ERROR),
        (WithStatus(401), Outcome.CONFIGURATION),
        (WithStatus(504), Outcome.TIMEOUT),
        (WithStatus(200), Outcome.CLIENT_ERROR),
        (WithStatus("429"), Outcome.CLIENT_ERROR),
        (WithStatus(7), Outcome.CLIENT_ERROR),
        (WithStatus(None), Outcome.CLIENT_ERROR),
    ],
    ids=repr,
)
def test_an_error_counts_as(error: BaseException, expected: Outcome) -> None:
    assert outcome(error) is expected


def test_causes_that_form_a_ring_end() -> None:
    first, second = ValueError(), TypeError()
    first.__cause__, second.__cause__ = second, first
    assert outcome(first) is Outcome.CLIENT_ERROR


def test_the_wait_that_an_endpoint_asked_for_is_kept() -> None:
    busy = WithStatus(429, {"retry-after": "7"})
    assert ending_of(busy, Unknown()).retry_after_s == 7
    assert ending_of(busy, Unknown(), longest_rest_s=5).retry_after_s == 5


async def by_openai(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="-", max_retries=0, timeout=0.3) as client:
        await client.embeddings.create(model="embedding", input="x", encoding_format="float")


async def by_httpx2(url: str) -> None:
    async with httpx2.AsyncClient(timeout=0.3) as client:
        answer = await client.post(f"{url}/embeddings", json={"input": "x", "model": "embedding"})
        answer.raise_for_status()


async def by_aiohttp(url: str) -> None:
    timeout = aiohttp.ClientTimeout(total=0.3)
    body = {"input": "x", "model": "embedding"}
    async with (
        aiohttp.ClientSession(raise_for_status=True, timeout=timeout) as client,
        client.post(f"{url}/embeddings", json=body) as answer,
    ):
        await answer.read()


@pytest.mark.anyio
@pytest.mark.parametrize("ask", [by_openai, by_httpx2, by_aiohttp])
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Status(engine=EMBEDDING, status=429, retry_after="2"), Outcome.CONGESTION),
        (Status(engine=EMBEDDING, status=500), Outcome.FAILURE),
        (Status(engine=EMBEDDING, status=422), Outcome.CLIENT_ERROR),
        (Reset(engine=EMBEDDING), Outcome.FAILURE),
        (Hang(engine=EMBEDDING), Outcome.TIMEOUT),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
async def test_the_errors_of_the_usual_clients_are_understood(host, ask, fault, expected) -> None:
    host.faults.add(fault)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each client has its own
        await ask(host.embed_url)
    ending = ending_of(caught.value, Unknown())
    assert ending.outcome is expected
    assert ending.retry_after_s == (2 if expected is Outcome.CONGESTION else None)


@pytest.mark.anyio
@pytest.mark.parametrize("ask", [by_openai, by_httpx2])
@pytest.mark.parametrize(
    ("engine", "status", "body", "expected"),
    [
        (LlamaCpp(), 503, {"error": {"message": "Loading model"}}, Outcome.LOADING),
        (Vllm(), 503, {"error": {"message": "Not admitted", "code": 503}}, Outcome.CONGESTION),
        (Unknown(), 503, {"detail": "no healthy upstream"}, Outcome.FAILURE),
        (LlamaCpp(), 500, {"error": {"message": "too large to process"}}, Outcome.CLIENT_ERROR),
        (Infinity(), 400, {"error": {"message": "Invalid model: x"}}, Outcome.CONFIGURATION),
    ],
)
async def test_what_an_engine_means_is_read_from_its_own_words(
    ask, engine, status, body, expected
) -> None:
    answer = json_response(body, status=f"{status} No")

    async def script(peer):
        while await peer.answer(answer):
            pass

    server = Server(script)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each client has its own
        await ask(f"{server.url}/v1")
    await server.aclose()
    assert ending_of(caught.value, engine).outcome is expected


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (503, "engine overloaded", Outcome.CONGESTION),
        (500, "CUDA error", Outcome.FAILURE),
        (400, "bad prompt", Outcome.CLIENT_ERROR),
    ],
)
async def test_an_error_inside_a_stream_is_understood(host, code, message, expected) -> None:
    host.faults.add(StreamError(engine=EngineName.CHAT, after_chunks=2, code=code, message=message))
    async with openai.AsyncOpenAI(base_url=host.chat_url, api_key="-", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": "hello"}], stream=True
        )
        with pytest.raises(openai.APIError) as caught:
            async for _ in stream:
                pass
    assert outcome(caught.value) is expected


@pytest.mark.anyio
async def test_a_stream_that_is_cut_is_understood(host) -> None:
    host.faults.add(Cut(engine=EngineName.CHAT, after_chunks=2))
    async with openai.AsyncOpenAI(base_url=host.chat_url, api_key="-", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": "hello"}], stream=True
        )
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the HTTP library's
            async for _ in stream:
                pass
    assert outcome(caught.value) is Outcome.FAILURE


@pytest.mark.anyio
async def test_nobody_listening_is_understood() -> None:
    for ask in (by_openai, by_httpx2, by_aiohttp):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            await ask("http://127.0.0.1:9/v1")
        assert outcome(caught.value) is Outcome.FAILURE


@pytest.mark.anyio
async def test_a_broken_endpoint_is_left_alone_after_a_few_failures(host, write) -> None:
    host.faults.add(Status(engine=EMBEDDING, status=500))
    async with forebay.open(write(emulated(host))) as fb:
        for _ in range(3):
            with pytest.raises(openai.InternalServerError):
                async with fb.slot("embedding") as lease:
                    await by_openai(lease.endpoint.base_url)
        with pytest.raises(forebay.Rejected) as caught:
            async with fb.slot("embedding"):
                pass
    assert caught.value.reason == "unavailable"
    assert host.record()["embedding"]["requests"] == 3


@pytest.mark.anyio
async def test_the_callers_own_errors_and_cancellations_leave_an_endpoint_alone(config) -> None:
    async with forebay.open(config()) as fb:
        for error in (ValueError(), asyncio.CancelledError(), FileNotFoundError()) * 10:
            with pytest.raises(type(error)):
                async with fb.slot("embed"):
                    raise error
        breaker = fb.status()["endpoints"]["embed@127.0.0.2:9"]["breaker"]
        assert (breaker["state"], breaker["failures"]) == ("closed", 0)


@pytest.mark.anyio
async def test_what_is_ignored_says_nothing(config) -> None:
    async with forebay.open(config()) as fb:
        for _ in range(10):
            lease = fb.try_slot("embed")
            lease.ignore()
            with pytest.raises(ConnectionError), lease:
                raise ConnectionError
        assert fb.status()["endpoints"]["embed@127.0.0.2:9"]["breaker"]["failures"] == 0
