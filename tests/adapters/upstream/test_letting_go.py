"""A request that is given up, at whatever moment, leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from forebay.errors import UpstreamError

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def endless_stream(peer):
    await peer.answer(CHUNKED)
    while True:
        await peer.send(b"1\r\nx\r\n")
        await asyncio.sleep(0)


async def silent(peer):
    await peer.request()


async def start(upstream, body=b"{}"):
    return await upstream.send(b"POST", b"/", [], body, head_timeout_s=5)


async def cancelled(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelled_after_any_number_of_turns_it_closes_its_connection(serve, connect):
    server = serve(endless_stream)
    upstream = connect(server.url)

    async def read_for_ever():
        response = await start(upstream)
        while await response.read(5):
            pass

    for turns in range(60):
        task = asyncio.create_task(read_for_ever())
        for _ in range(turns):
            await asyncio.sleep(0)
        await cancelled(task)
        assert (upstream.stats().open, upstream.stats().idle) == (0, 0)
        await server.left()
    assert upstream.stats().connects > 0


async def test_cancelled_after_any_number_of_turns_a_pool_stays_true(serve, connect, fetch):
    async def always_ok(peer):
        while await peer.answer(OK):
            pass

    server = serve(always_ok)
    upstream = connect(server.url)
    completed = 0
    for turns in range(60):
        task = asyncio.create_task(fetch(upstream))
        for _ in range(turns % 20):
            await asyncio.sleep(0)
        task.cancel()
        completed += isinstance((await asyncio.gather(task, return_exceptions=True))[0], tuple)
        assert upstream.stats().open == upstream.stats().idle <= 1
    assert 0 < completed < 60
    await fetch(upstream)
    await upstream.aclose()
    await server.left()


async def test_cancelled_while_it_waits_for_the_head_it_closes_its_connection(serve, connect):
    received = asyncio.Event()

    async def note_and_be_silent(peer):
        await peer.request()
        received.set()

    server = serve(note_and_be_silent)
    upstream = connect(server.url)
    task = asyncio.create_task(start(upstream))
    await received.wait()
    await cancelled(task)
    assert upstream.stats().open == 0
    await server.left()


async def test_cancelled_in_the_turn_in_which_the_head_arrives_it_closes_its_connection(
    serve, connect, until
):
    server = serve(endless_stream)
    upstream = connect(server.url)
    task = asyncio.create_task(start(upstream))
    await until(lambda: upstream.stats().connects)
    (connection,) = upstream._pool._connections
    await until(lambda: connection.parser.status)
    await cancelled(task)
    assert upstream.stats().open == 0
    await server.left()


async def test_cancelled_while_a_large_request_is_stuck_it_closes_its_connection(
    serve, connect, until
):
    go_on = asyncio.Event()

    async def do_not_read(_peer):
        await go_on.wait()

    server = serve(do_not_read)
    upstream = connect(server.url)
    task = asyncio.create_task(start(upstream, bytes(32 * 1024 * 1024)))
    await until(lambda: upstream.stats().connects)
    await cancelled(task)
    go_on.set()
    await server.left()
    assert upstream.stats().open == 0


async def test_cancelled_while_it_waits_for_a_piece_it_closes_its_connection(serve, connect):
    async def head_only(peer):
        await peer.answer(CHUNKED)

    server = serve(head_only)
    upstream = connect(server.url)
    response = await start(upstream)
    task = asyncio.create_task(response.read())
    await asyncio.sleep(0)
    await cancelled(task)
    assert upstream.stats().open == 0
    await server.left()
    with pytest.raises(UpstreamError, match="given up"):
        await response.read()


async def test_an_aborted_response_closes_its_connection_at_once(serve, connect):
    server = serve(endless_stream)
    upstream = connect(server.url)
    response = await start(upstream)
    assert await response.read(5) == b"x"
    response.abort()
    response.abort()
    assert (upstream.stats().open, response.complete) == (0, False)
    await server.left()


async def test_an_aborted_response_that_was_complete_keeps_its_connection(serve, connect, fetch):
    async def always_ok(peer):
        while await peer.answer(OK):
            pass

    upstream = connect(serve(always_ok).url)
    response = await start(upstream)
    assert response.complete
    response.abort()
    response.abort()
    assert (upstream.stats().open, upstream.stats().idle, response.complete) == (1, 1, True)
    _, pieces = await fetch(upstream)
    assert pieces == [b"ok"]
    assert upstream.stats().reuses == 1


async def test_a_settled_response_has_no_hold_on_the_next_ones_connection(serve, connect):
    async def always_ok(peer):
        while await peer.answer(OK):
            pass

    upstream = connect(serve(always_ok).url)
    first = await start(upstream)
    assert [await first.read(), await first.read(), await first.read()] == [b"ok", b"", b""]
    second = await start(upstream)
    first.abort()
    del first
    gc.collect()
    assert [await second.read(5), await second.read(5)] == [b"ok", b""]


async def test_aborting_wakes_the_task_that_reads(serve, connect):
    async def head_only(peer):
        await peer.answer(CHUNKED)

    response = await start(connect(serve(head_only).url))
    reading = asyncio.create_task(response.read())
    await asyncio.sleep(0)
    response.abort()
    with pytest.raises(UpstreamError, match="given up"):
        await reading


async def test_two_tasks_cannot_read_one_response(serve, connect):
    async def head_only(peer):
        await peer.answer(CHUNKED)

    response = await start(connect(serve(head_only).url))
    reading = asyncio.create_task(response.read())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="two tasks"):
        await response.read()
    with pytest.raises(UpstreamError):
        await reading


async def test_a_forgotten_response_closes_its_connection(serve, connect):
    server = serve(endless_stream)
    upstream = connect(server.url)
    response = await start(upstream)
    del response
    gc.collect()
    await server.left()
    assert upstream.stats().open == 0


async def test_a_response_collected_in_another_thread_closes_its_connection(serve, connect):
    server = serve(endless_stream)
    upstream = connect(server.url)
    holder = [await start(upstream)]
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    await server.left()
    assert upstream.stats().open == 0


async def test_closing_the_client_fails_what_is_under_way(serve, connect, until):
    server = serve(silent)
    upstream = connect(server.url)
    waiting = asyncio.create_task(start(upstream))
    await until(lambda: upstream.stats().connects)
    await upstream.aclose()
    with pytest.raises(UpstreamError):
        await waiting
    assert upstream.stats().open == 0
    await server.left()


async def test_closing_the_client_fails_a_connection_in_the_making(serve, connect):
    server = serve(silent)
    upstream = connect(server.url)
    waiting = asyncio.create_task(start(upstream))
    await asyncio.sleep(0)
    assert (upstream.stats().open, upstream.stats().connects) == (1, 0)
    await upstream.aclose()
    with pytest.raises(UpstreamError, match="closed"):
        await waiting
    assert upstream.stats().open == 0
    await server.left()
