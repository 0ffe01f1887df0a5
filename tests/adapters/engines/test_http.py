from __future__ import annotations

import asyncio
import gzip
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from forebay.adapters.engines.http import HttpFetch, scrape_session
from forebay.adapters.engines.reply import MAX_BODY_BYTES
from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from conftest import Server

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def raw_server(answer: bytes, *, hang: bool = False) -> AsyncIterator[str]:
    """Sends exactly these bytes to whoever asks; then closes, or says nothing more."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if hang:
            await done.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"
        done.set()


async def test_a_page_comes_with_status_headers_and_body(
    server: Server, session: aiohttp.ClientSession
) -> None:
    server.pages["/metrics"] = "up 1\n"
    reply = await HttpFetch(session)(f"{server.root}/metrics")

    assert (reply.status, reply.text()) == (200, "up 1\n")
    assert (await HttpFetch(session)(f"{server.root}/props")).absent


async def test_a_packed_page_is_unpacked(session: aiohttp.ClientSession) -> None:
    body = gzip.compress(b"up 1\n")
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    async with raw_server(head.encode() + body) as url:
        reply = await HttpFetch(session)(url)

    assert reply.text() == "up 1\n"


async def test_the_key_is_sent_to_the_server_and_shown_to_nobody(
    server: Server, session: aiohttp.ClientSession
) -> None:
    server.pages["/metrics"] = "up 1\n"
    fetch = HttpFetch(session, api_key="sk-secret")
    await fetch(f"{server.root}/metrics")
    await HttpFetch(session)(f"{server.root}/metrics")

    assert server.headers[0]["Authorization"] == "Bearer sk-secret"
    assert "Authorization" not in server.headers[1]
    assert "secret" not in repr(fetch)


async def test_a_redirect_is_not_followed(session: aiohttp.ClientSession) -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    async with raw_server(head) as url:
        assert (await HttpFetch(session)(url)).status == 302


async def test_a_server_that_hangs_fails_the_read_in_time() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nup 1"
    async with scrape_session(timeout_s=0.05) as session, raw_server(head, hang=True) as url:
        with pytest.raises(ScrapeFailed, match="in time"):
            await HttpFetch(session)(url)


async def test_a_body_cut_short_fails_the_read(session: aiohttp.ClientSession) -> None:
    async with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nup 1") as url:
        with pytest.raises(ScrapeFailed):
            await HttpFetch(session)(url)


async def test_an_endless_body_is_given_up(session: aiohttp.ClientSession) -> None:
    body = b"x" * (MAX_BODY_BYTES + 1)
    async with raw_server(b"HTTP/1.1 200 OK\r\n\r\n" + body) as url:
        with pytest.raises(ScrapeFailed, match="limit"):
            await HttpFetch(session)(url)


SECRETS = "?token=hush&x=http://hush@hush/"


@pytest.mark.parametrize(
    "answer",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_BODY_BYTES + 1)],
    ids=["nothing", "not HTTP", "endless"],
)
async def test_an_error_names_the_page_without_what_is_secret_in_its_url(
    answer: bytes, session: aiohttp.ClientSession
) -> None:
    async with raw_server(answer) as url:
        whole = url.replace("://", "://hush:hush@") + SECRETS
        with pytest.raises(ScrapeFailed) as caught:
            await HttpFetch(session)(whole)
    assert url in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://hush@[::1/" + SECRETS, "hush@nonsense" + SECRETS])
async def test_an_error_about_a_url_does_not_repeat_it(
    url: str, session: aiohttp.ClientSession
) -> None:
    with pytest.raises(ScrapeFailed) as caught:
        await HttpFetch(session)(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/metrics", "nonsense", "http://[::1/"])
async def test_what_cannot_be_reached_fails_the_read(
    url: str, session: aiohttp.ClientSession
) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ScrapeFailed):
            await HttpFetch(session)(url.format(port=taken.getsockname()[1]))
