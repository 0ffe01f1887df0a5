"""Which connection is used again, and which request is sent again."""

from __future__ import annotations

import asyncio
import time

import pytest

from forebay.adapters.upstream import UpstreamSettings
from forebay.errors import PoolExhausted, UpstreamError, UpstreamTimeout

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def always_ok(peer):
    while await peer.answer(OK):
        pass


async def test_a_connection_serves_request_after_request(serve, connect, fetch):
    upstream = connect(serve(always_ok).url)
    for _ in range(5):
        response, pieces = await fetch(upstream)
        assert (response.status, response.complete, pieces) == (200, True, [b"ok"])
    stats = upstream.stats()
    assert (stats.open, stats.idle, stats.connects, stats.reuses) == (1, 1, 1, 4)


async def test_the_connection_used_last_is_used_first(serve, connect, fetch):
    served = []

    async def note_who_serves(peer):
        while await peer.answer(OK):
            served.append(peer.number)

    upstream = connect(serve(note_who_serves).url)
    first = await upstream.send(b"GET", b"/", [], b"", head_timeout_s=5)
    second = await upstream.send(b"GET", b"/", [], b"", head_timeout_s=5)
    for response in (first, second):
        while await response.read():
            pass
    await fetch(upstream)
    await fetch(upstream)
    assert served == [0, 1, 1, 1]


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_server_that_closes_as_the_request_leaves_is_never_noticed(
    serve, connect, fetch, ending
):
    over = asyncio.Event()

    async def answer_once(peer):
        await peer.answer(OK)
        await over.wait()

    server = serve(answer_once)
    upstream = connect(server.url)
    await fetch(upstream)
    for _ in range(200):
        # Closed in the turn of the loop in which the request is written: no one can know yet.
        getattr(server.peers[-1], ending)()
        response, pieces = await fetch(upstream)
        assert (response.status, pieces) == (200, [b"ok"])
    stats = upstream.stats()
    assert (stats.transparent_retries, stats.connects, stats.open) == (200, 201, 1)
    over.set()


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_reused_connection_that_dies_on_the_request_is_replaced_once(
    serve, connect, fetch, ending
):
    requests = []

    async def one_answer_then_die_on_the_next(peer):
        requests.append(await peer.answer(OK))
        requests.append(await peer.request())
        getattr(peer, ending)()

    upstream = connect(serve(one_answer_then_die_on_the_next).url)
    await fetch(upstream, body=b"one")
    await fetch(upstream, body=b"two")
    assert [r[-3:] for r in requests] == [b"one", b"two", b"two"]
    assert upstream.stats().transparent_retries == 1


async def test_a_retry_that_fails_is_an_error_and_not_retried(serve, connect, fetch):
    async def only_the_first_connection_answers(peer):
        if peer.number == 0:
            await peer.answer(OK)
        await peer.request()
        peer.close()

    server = serve(only_the_first_connection_answers)
    upstream = connect(server.url)
    await fetch(upstream)
    with pytest.raises(UpstreamError, match="closed before a response") as caught:
        await fetch(upstream)
    assert not caught.value.reused
    assert (len(server.peers), upstream.stats().transparent_retries) == (2, 1)


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_new_connection_that_dies_without_a_byte_is_an_error(serve, connect, fetch, ending):
    async def die(peer):
        await peer.request()
        getattr(peer, ending)()

    server = serve(die)
    upstream = connect(server.url)
    with pytest.raises(UpstreamError, match=server.url) as caught:
        await fetch(upstream)
    assert not caught.value.response_started
    assert (len(server.peers), upstream.stats().transparent_retries) == (1, 0)


@pytest.mark.parametrize("beginning", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n", OK[:30]])
async def test_after_a_byte_of_a_response_nothing_is_sent_again(serve, connect, fetch, beginning):
    async def begin_then_die(peer):
        await peer.answer(OK)
        await peer.answer(beginning)
        peer.close()

    server = serve(begin_then_die)
    upstream = connect(server.url)
    await fetch(upstream)
    with pytest.raises(UpstreamError) as caught:
        await fetch(upstream)
    assert caught.value.reused
    assert caught.value.response_started
    assert (len(server.peers), upstream.stats().transparent_retries) == (1, 0)


async def test_a_timeout_on_a_reused_connection_is_not_sent_again(serve, connect, fetch):
    async def answer_once(peer):
        await peer.answer(OK)

    server = serve(answer_once)
    upstream = connect(server.url)
    await fetch(upstream)
    with pytest.raises(UpstreamTimeout) as caught:
        await upstream.send(b"POST", b"/", [], b"", head_timeout_s=0.05)
    assert caught.value.reused
    assert len(server.peers) == 1


async def test_a_connection_that_the_server_closes_while_idle_leaves_the_pool(
    serve, connect, fetch, until
):
    async def close_after_one(peer):
        await peer.answer(OK)
        peer.close()

    server = serve(close_after_one)
    upstream = connect(server.url)
    for _ in range(20):
        await fetch(upstream)
        await server.left()
        await until(lambda: not upstream.stats().open)
    assert upstream.stats().transparent_retries == 0


async def test_a_connection_on_which_bytes_come_while_idle_leaves_the_pool(serve, connect, fetch):
    go_on = asyncio.Event()

    async def talk_unasked(peer):
        await peer.answer(OK)
        await go_on.wait()
        await peer.send(OK)

    server = serve(talk_unasked)
    upstream = connect(server.url)
    await fetch(upstream)
    assert upstream.stats().idle == 1
    go_on.set()
    await server.left()
    assert (upstream.stats().open, upstream.stats().idle) == (0, 0)


@pytest.mark.parametrize("junk", [b"x", OK, b"HTTP/1.", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=repr)
async def test_bytes_behind_a_response_end_its_connection_but_not_the_response(
    serve, connect, fetch, junk
):
    async def send_too_much(peer):
        await peer.answer(OK + junk)

    server = serve(send_too_much)
    upstream = connect(server.url)
    response, pieces = await fetch(upstream)
    assert (response.status, pieces, response.complete) == (200, [b"ok"], True)
    assert upstream.stats().open == 0
    await server.left()


@pytest.mark.parametrize(
    ("head", "reused"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Keep-Alive\r\nKeep-Alive: timeout=5\r\n", True),
    ],
    ids=repr,
)
async def test_what_the_server_says_of_its_connection_is_honoured(
    serve, connect, fetch, head, reused
):
    async def answer(peer):
        while await peer.answer(head + b"Content-Length: 2\r\n\r\nok"):
            pass

    server = serve(answer)
    upstream = connect(server.url)
    for _ in range(2):
        _, pieces = await fetch(upstream)
        assert pieces == [b"ok"]
    assert len(server.peers) == (1 if reused else 2)
    assert upstream.stats().open == (1 if reused else 0)


async def test_chunks_from_a_server_too_old_for_them_end_its_connection(serve, connect, fetch):
    async def answer(peer):
        await peer.answer(
            b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\nok\r\n0\r\n\r\n"
        )

    upstream = connect(serve(answer).url)
    _, pieces = await fetch(upstream)
    assert (pieces, upstream.stats().open) == ([b"ok"], 0)


async def test_an_idle_connection_is_closed_in_time(serve, connect, fetch):
    server = serve(always_ok)
    upstream = connect(server.url, UpstreamSettings(idle_s=0.05))
    await fetch(upstream)
    assert upstream.stats().idle == 1
    await server.left()
    assert (upstream.stats().open, upstream.stats().idle) == (0, 0)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvloop's clock cannot be set
async def test_each_idle_connection_has_its_own_time(serve, connect, fetch, until, monkeypatch):
    loop = asyncio.get_running_loop()

    def pass_time(seconds):
        later = loop.time() - time.monotonic() + seconds
        monkeypatch.setattr(loop, "time", lambda: time.monotonic() + later)

    server = serve(always_ok)
    upstream = connect(server.url, UpstreamSettings(idle_s=100))
    slow = await upstream.send(b"GET", b"/", [], b"", head_timeout_s=5)
    await fetch(upstream)
    pass_time(60)
    slow.abort()
    assert upstream.stats().idle == 2
    pass_time(60)
    await until(lambda: upstream.stats().idle < 2)
    assert upstream.stats().idle == 1
    pass_time(60)
    await server.left()
    assert upstream.stats().idle == 0


async def test_an_idle_connection_that_turns_out_closed_is_replaced(serve, connect, fetch):
    upstream = connect(serve(always_ok).url)
    await fetch(upstream)
    (connection,) = upstream._pool._connections
    connection._transport.abort()  # as the loop does on an error that it has yet to report
    _, pieces = await fetch(upstream)
    assert pieces == [b"ok"]
    assert upstream.stats().transparent_retries == 1


async def test_an_idle_connection_past_its_time_is_never_reused(serve, connect, fetch):
    server = serve(always_ok)
    upstream = connect(server.url, UpstreamSettings(idle_s=0))
    for _ in range(3):
        await fetch(upstream)
    assert (upstream.stats().reuses, upstream.stats().connects) == (0, 3)


async def test_a_full_pool_is_this_sides_fault_and_told_at_once(serve, connect, fetch):
    server = serve(always_ok)
    upstream = connect(server.url, UpstreamSettings(max_connections=1))
    response = await upstream.send(b"GET", b"/", [], b"", head_timeout_s=5)
    with pytest.raises(PoolExhausted, match="all 1 connections") as caught:
        await fetch(upstream)
    assert not isinstance(caught.value, UpstreamError)
    response.abort()
    await fetch(upstream)


async def test_a_closed_client_refuses(serve, connect, fetch):
    server = serve(always_ok)
    upstream = connect(server.url)
    await fetch(upstream)
    await upstream.aclose()
    await server.left()
    with pytest.raises(UpstreamError, match="closed"):
        await fetch(upstream)
    assert upstream.stats().open == 0


async def test_a_client_belongs_to_one_event_loop(serve, connect, fetch):
    async def ok_once(peer):
        await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    upstream = connect(serve(ok_once).url)
    await fetch(upstream)

    def from_another_loop():
        return asyncio.run(upstream.send(b"GET", b"/", [], b"", head_timeout_s=5))

    with pytest.raises(RuntimeError, match="another event loop"):
        await asyncio.to_thread(from_another_loop)
