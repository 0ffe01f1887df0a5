"""Bodies that are handed on while they arrive: in order, whole, and no faster than is accepted."""

from __future__ import annotations

import asyncio

import pytest

from forebay.adapters.upstream import ACCEPTED
from forebay.errors import UpstreamError, UpstreamTimeout

pytestmark = pytest.mark.anyio

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


class Full:
    """What a full sink returns: it is over when the sink says so."""

    def __init__(self, event):
        self.event = event

    def __await__(self):
        yield from self.event.wait().__await__()


def chunk(text):
    return b"%x\r\n%b\r\n" % (len(text), text)


async def start(upstream):
    return await upstream.send(b"POST", b"/", [], b"{}", head_timeout_s=5)


async def test_pieces_arrive_one_by_one_while_the_task_sleeps(serve, connect):
    async def script(peer):
        await peer.answer(CHUNKED)
        for number in range(50):
            await peer.send(chunk(b"%d" % number))
            await asyncio.sleep(0)
        await peer.send(END)

    upstream = connect(serve(script).url)
    response = await start(upstream)
    got = []

    def take(piece):
        got.append(piece)
        return ACCEPTED

    assert await response.relay(take) is None
    assert got == [b"%d" % number for number in range(50)]
    assert response.complete
    assert upstream.stats().idle == 1


async def test_a_full_sink_stops_it_and_nothing_is_lost(serve, connect):
    pieces = [b"%d" % number for number in range(20)]

    async def script(peer):
        await peer.answer(CHUNKED, b"".join(map(chunk, pieces)) + END)

    response = await start(connect(serve(script).url))
    got = []
    room = asyncio.Event()
    full = Full(room)

    def take(piece):
        got.append(piece)
        return full if len(got) % 3 == 0 else ACCEPTED

    stops = 0
    while (waits := await response.relay(take)) is not None:
        assert waits is full
        assert len(got) == 3 * (stops + 1)
        stops += 1
    assert got == pieces
    assert stops == 6


async def test_an_endpoint_is_not_read_while_the_sink_is_full(serve, connect, until):
    sent = 0

    async def script(peer):
        nonlocal sent
        await peer.answer(CHUNKED)
        while True:
            await peer.send(chunk(b"x" * 65536))
            sent += 1

    server = serve(script)
    upstream = connect(server.url)
    response = await start(upstream)
    full = Full(asyncio.Event())
    assert await response.relay(lambda _: full) is full
    (connection,), (peer,) = upstream._pool._connections, server.peers
    await until(lambda: not connection._transport.is_reading() and not peer.can_send())
    assert sent < 1000
    response.abort()
    await until(lambda: upstream.stats().open == 0)


async def test_what_came_before_a_cut_is_handed_on_then_it_fails(serve, connect):
    async def script(peer):
        await peer.answer(CHUNKED + chunk(b"one"))
        await peer.send(chunk(b"two"))
        peer.close()

    response = await start(connect(serve(script).url))
    got = []

    def take(piece):
        got.append(piece)
        return ACCEPTED

    with pytest.raises(UpstreamError, match="in the middle of"):
        await response.relay(take)
    assert got == [b"one", b"two"]


async def test_a_body_without_a_length_ends_with_its_connection(serve, connect):
    async def script(peer):
        await peer.answer(b"HTTP/1.1 200 OK\r\n\r\none")
        peer.close()

    response = await start(connect(serve(script).url))
    got = []

    def take(piece):
        got.append(piece)
        return ACCEPTED

    assert await response.relay(take) is None
    assert b"".join(got) == b"one"


async def test_what_the_sink_raises_is_the_callers_and_closes_the_connection(serve, connect, until):
    async def script(peer):
        await peer.answer(CHUNKED)
        await peer.send(chunk(b"one"))
        await peer.gone()

    upstream = connect(serve(script).url)
    response = await start(upstream)

    def take(piece):
        raise LookupError(piece)

    with pytest.raises(LookupError):
        await response.relay(take)
    response.abort()
    await until(lambda: upstream.stats().open == 0)


async def test_it_can_be_timed_out_from_without(serve, connect):
    async def script(peer):
        await peer.answer(CHUNKED + chunk(b"one"))
        await peer.gone()

    response = await start(connect(serve(script).url))
    asyncio.get_running_loop().call_later(0.05, response.time_out, 7)
    with pytest.raises(UpstreamTimeout, match="7 s"):
        await response.relay(lambda _: ACCEPTED)


async def test_cancelled_it_hands_on_nothing_more(serve, connect, until):
    async def script(peer):
        await peer.answer(CHUNKED + chunk(b"one"))
        while True:
            await peer.send(chunk(b"more"))
            await asyncio.sleep(0)

    server = serve(script)
    upstream = connect(server.url)
    response = await start(upstream)
    got = []

    def take(piece):
        got.append(piece)
        return ACCEPTED

    task = asyncio.create_task(response.relay(take))
    await until(lambda: len(got) > 3)
    task.cancel()
    count = len(got)
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.left()
    assert len(got) == count
    assert upstream.stats().open == 0


async def test_one_that_was_given_up_hands_on_nothing(serve, connect):
    async def script(peer):
        await peer.answer(CHUNKED + chunk(b"one"))
        await peer.gone()

    response = await start(connect(serve(script).url))
    response.abort()
    with pytest.raises(UpstreamError, match="given up"):
        await response.relay(lambda _: ACCEPTED)
