"""Servers that break the protocol or go away."""

from __future__ import annotations

import asyncio

import pytest

from forebay.adapters.upstream import UpstreamSettings
from forebay.errors import UpstreamError, UpstreamTimeout

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n"

BROKEN_HEADS = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/2": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "two-digit status": b"HTTP/1.1 20 OK\r\n\r\n",
    "NUL in a header": HEAD + b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "bare CR in a header": HEAD + b"X: a\rb\r\nContent-Length: 0\r\n\r\n",
    "bare LF as line end": HEAD + b"X: a\nContent-Length: 0\r\n\r\n",
    "folded header": HEAD + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "space before the colon": HEAD + b"X : a\r\nContent-Length: 0\r\n\r\n",
    "header without colon": HEAD + b"X\r\nContent-Length: 0\r\n\r\n",
    "different lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    "list of lengths": HEAD + b"Content-Length: 2, 2\r\n\r\nab",
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "length beyond 64 bits": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
    "length and chunked": CHUNKED + b"Content-Length: 3\r\n\r\n0\r\n\r\n",
    "chunked and length": HEAD
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "unasked coding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding that is not last": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\nabc",
    "chunked twice": CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "unasked upgrade": b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "101 alone": b"HTTP/1.1 101 Switching\r\n\r\n",
    "interim with a body": b"HTTP/1.1 150 Odd\r\nContent-Length: 1\r\n\r\nx",
}


@pytest.mark.parametrize("head", [pytest.param(v, id=k) for k, v in BROKEN_HEADS.items()])
async def test_a_head_that_is_not_http_is_an_error_and_not_sent_again(serve, connect, fetch, head):
    async def answer(peer):
        await peer.answer(head)

    server = serve(answer)
    upstream = connect(server.url)
    with pytest.raises(UpstreamError, match=server.url) as caught:
        await fetch(upstream)
    assert caught.value.response_started
    assert not isinstance(caught.value, UpstreamTimeout)
    assert (len(server.peers), upstream.stats().open) == (1, 0)
    await server.left()


BROKEN_BODIES = {
    "chunk size that is no number": CHUNKED + b"\r\n5\r\nhello\r\nzz\r\n",
    "chunk longer than its size": CHUNKED + b"\r\n5\r\nhello!!\r\n",
    "chunk size beyond 64 bits": CHUNKED + b"\r\n5\r\nhello\r\nfffffffffffffffff\r\n",
    "bare LF after a chunk": CHUNKED + b"\r\n5\r\nhello\n0\r\n\r\n",
}


@pytest.mark.parametrize("sent", [pytest.param(v, id=k) for k, v in BROKEN_BODIES.items()])
async def test_a_body_that_is_not_http_fails_after_what_was_good(serve, connect, sent):
    async def answer(peer):
        await peer.answer(sent)

    server = serve(answer)
    response = await connect(server.url).send(b"GET", b"/", [], b"", head_timeout_s=5)
    assert await response.read(5) == b"hello"
    with pytest.raises(UpstreamError) as caught:
        await response.read(5)
    assert caught.value.response_started
    assert not response.complete
    await server.left()


@pytest.mark.parametrize("ending", ["close", "reset"])
@pytest.mark.parametrize(
    "head",
    [HEAD + b"Content-Length: 9\r\n\r\n", CHUNKED + b"\r\n9\r\n", CHUNKED + b"\r\n5\r\n"],
    ids=["length", "in a chunk", "after a chunk"],
)
async def test_a_body_that_is_cut_never_ends_cleanly(serve, connect, head, ending):
    read = asyncio.Event()

    async def cut(peer):
        await peer.answer(head + b"hello")
        await read.wait()
        getattr(peer, ending)()

    server = serve(cut)
    upstream = connect(server.url)
    response = await upstream.send(b"GET", b"/", [], b"", head_timeout_s=5)
    assert await response.read(5) == b"hello"
    read.set()
    with pytest.raises(UpstreamError) as caught:
        await response.read(5)
    assert caught.value.response_started
    assert not response.complete
    with pytest.raises(UpstreamError):
        await response.read(5)
    assert (len(server.peers), upstream.stats().open) == (1, 0)


async def test_a_cut_while_nobody_reads_comes_after_what_had_arrived(serve, connect, until):
    async def cut(peer):
        await peer.answer(HEAD + b"Content-Length: 9\r\n\r\nhello")
        peer.close()

    upstream = connect(serve(cut).url)
    response = await upstream.send(b"GET", b"/", [], b"", head_timeout_s=5)
    await until(lambda: not upstream.stats().open)
    assert await response.read() == b"hello"
    with pytest.raises(UpstreamError, match="in the middle of a response"):
        await response.read()


async def test_a_head_that_trickles_in_does_not_stretch_its_time(serve, connect):
    async def trickle(peer):
        await peer.request()
        for byte in HEAD + b"X: " + b"y" * 1000:
            await peer.send(bytes([byte]))
            await asyncio.sleep(0.01)

    upstream = connect(serve(trickle).url)
    with pytest.raises(UpstreamTimeout, match=r"no head of a response within 0\.1 s") as caught:
        await upstream.send(b"GET", b"/", [], b"", head_timeout_s=0.1)
    assert caught.value.response_started
    # The script's writes fail from here on.
    await upstream.aclose()


async def test_silence_before_the_head_ends_in_a_timeout_and_a_closed_connection(serve, connect):
    async def say_nothing(peer):
        await peer.request()

    server = serve(say_nothing)
    upstream = connect(server.url)
    with pytest.raises(UpstreamTimeout) as caught:
        await upstream.send(b"GET", b"/", [], b"", head_timeout_s=0.05)
    assert not caught.value.response_started
    assert upstream.stats().open == 0
    await server.left()


@pytest.mark.parametrize(
    "endless",
    [
        HEAD + b"X: " + b"y" * 9000,
        HEAD + b"X: y\r\n" * 1500,
        b"HTTP/1.1 200 " + b"y" * 9000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 400,
        HEAD + b"X: y\r\n" * 1500 + b"Content-Length: 2\r\n\r\nok",
    ],
    ids=["one header", "many headers", "reason", "interim responses", "complete"],
)
async def test_a_head_beyond_the_limit_is_an_error(serve, connect, fetch, endless):
    async def answer(peer):
        await peer.answer(endless)

    server = serve(answer)
    upstream = connect(server.url, UpstreamSettings(max_head_bytes=8192))
    with pytest.raises(UpstreamError, match="8192 bytes"):
        await fetch(upstream)
    await server.left()


async def test_a_head_within_the_limit_may_have_a_long_body_behind_it(serve, connect, fetch):
    async def answer(peer):
        head = HEAD + b"X: y\r\n" * 500 + b"Content-Length: 100000\r\n\r\n"
        await peer.answer(head + bytes(100_000))

    upstream = connect(serve(answer).url, UpstreamSettings(max_head_bytes=8192))
    _, pieces = await fetch(upstream)
    assert sum(map(len, pieces)) == 100_000


@pytest.mark.parametrize(
    "endless",
    [b"0\r\nX: " + b"y" * 9000, b"0\r\n" + b"X: y\r\n" * 1500, b"5;" + b"y" * 9000],
    ids=["one trailer", "many trailers", "chunk extension"],
)
async def test_framing_without_end_is_an_error(serve, connect, endless):
    read = asyncio.Event()

    async def answer(peer):
        await peer.answer(CHUNKED + b"\r\n5\r\nhello\r\n")
        await read.wait()
        await peer.send(endless)

    server = serve(answer)
    upstream = connect(server.url, UpstreamSettings(max_head_bytes=8192))
    response = await upstream.send(b"GET", b"/", [], b"", head_timeout_s=5)
    assert await response.read(5) == b"hello"
    read.set()
    with pytest.raises(UpstreamError, match="8192 bytes"):
        await response.read(5)
    await server.left()


async def test_a_server_that_talks_first_is_not_answered(serve, connect, fetch):
    async def greet(peer):
        await peer.send(b"220 mail.example ESMTP\r\n")

    server = serve(greet)
    upstream = connect(server.url)
    with pytest.raises(UpstreamError):
        await fetch(upstream)
    await server.left()
    assert len(server.peers) == 1
