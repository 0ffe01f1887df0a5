"""The library's types, as a type checker of its users sees them; it is never run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator
from typing import Any, assert_type

import openai
from numpy import float32
from numpy.typing import NDArray

import forebay


async def embed(text: str) -> list[float]:
    return [float(len(text))]


def embed_sync(text: str) -> list[float]:
    return [float(len(text))]


async def texts() -> AsyncIterator[str]:
    yield "a text"


async def tasks() -> None:
    async with forebay.open("config.json") as fb:
        assert_type(fb, forebay.Session)
        async with fb.slot("bge-m3", timeout=30, priority="best-effort", tokens=10) as lease:
            assert_type(lease, forebay.Lease)
            assert_type(lease.endpoint.base_url, str)
            assert_type(lease.queued_s, float)
        free = fb.try_slot("bge-m3")
        assert_type(free, forebay.Lease | None)
        if free is not None:
            with free as held:
                assert_type(held, forebay.Lease)

        vectors = await fb.map_concurrent(embed, ["a text"], model="bge-m3")
        assert_type(vectors, list[list[float]])
        some = await fb.map_concurrent(embed, texts(), model="bge-m3", on_error="collect")
        assert_type(some, list[list[float] | BaseException])
        await fb.map_concurrent(
            embed,
            ["a text"],
            model="bge-m3",
            timeout=5,
            size=lambda text: len(text) / 4,
            retry=forebay.Retry(attempts=2, on=(OSError, ValueError)),
            progress=lambda progress: (progress.done, progress.total),
        )
        stream = fb.stream(embed, texts(), model="bge-m3", buffer=10)
        assert_type(stream, AsyncGenerator[list[float], None])
        pairs = fb.as_completed(embed, texts(), model="bge-m3", on_error="collect")
        assert_type(pairs, AsyncGenerator[tuple[str, list[float] | BaseException], None])
        rows = await fb.embed(texts(), model="bge-m3", priority="best-effort", progress="tqdm")
        assert_type(rows, NDArray[float32])
        kept = await fb.embed(texts(), model="bge-m3", on_error="collect")
        assert_type(kept, list[NDArray[float32] | forebay.ForebayError])
        openai.AsyncOpenAI(api_key="-", http_client=fb.http_client(priority="best-effort"))
        assert_type(fb.status(), dict[str, Any])
        assert_type(fb.embedding_endpoint_status(), dict[str, Any])


def threads() -> None:
    with forebay.open_sync() as fb:
        assert_type(fb, forebay.Session)
        with fb.slot("bge-m3") as lease:
            lease.first_token(prompt_tokens=12)
            lease.work(128)
            lease.ignore()
        vectors = fb.map_concurrent_sync(embed_sync, ["a text"], model="bge-m3", progress="rich")
        assert_type(vectors, list[list[float]])
        stream = fb.stream_sync(embed_sync, ["a text"], model="bge-m3")
        assert_type(stream, Generator[list[float], None, None])
        rows = fb.embed_sync(["a text"], model="bge-m3", timeout=30, dimensions=256)
        assert_type(rows, NDArray[float32])
        openai.OpenAI(api_key="-", http_client=fb.http_client_sync(library="httpx2"))
        pairs = fb.as_completed_sync(embed_sync, ["a text"], model="bge-m3")
        assert_type(pairs, Generator[tuple[str, list[float]], None, None])
    fb.close()


def errors() -> None:
    try:
        threads()
    except forebay.Rejected as error:
        assert_type(error.reason, str)
        assert_type(error.retry_after_s, float | None)
    except forebay.ItemsError as error:
        assert_type(error.results, list[object] | None)
    except (forebay.UsageError, forebay.ConfigError, forebay.CallbackError) as error:
        assert_type(error, forebay.UsageError | forebay.ConfigError | forebay.CallbackError)


async def what_is_wrong() -> None:
    async with forebay.open() as fb:
        fb.slot("bge-m3", priority="interactive")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        fb.slot("bge-m3", tiemout=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        await fb.embed(["a text"], model="bge-m3", retry=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
        await fb.map_concurrent(embed, ["a text"])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
        await fb.map_concurrent(embed, [1], model="bge-m3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
