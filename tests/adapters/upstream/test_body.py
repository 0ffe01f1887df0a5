"""What comes out of a response is what went into it, piece by piece, and never without bound."""

from __future__ import annotations

import asyncio

import pytest

from forebay.errors import UpstreamError, UpstreamTimeout

pytestmark = pytest.mark.anyio

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MIB = 1024 * 1024


def chunk(data, extension=b""):
    return b"%x%b\r\n%b\r\n" % (len(data), extension, data)


async def start(upstream, method=b"POST", body=b"{}"):
    return await upstream.send(method, b"/v1/x", [], body, head_timeout_s=5)


async def test_status_reason_and_headers_are_as_received(serve, connect, fetch):
    async def answer(peer):
        await peer.answer(
            b"HTTP/1.1 418 I'm  a Teapot\r\nX-B: 1\r\nx-a: \r\nx-b:  two words\r\n"
            b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nCONTENT-LENGTH: 0\r\n\r\n"
        )

    response, pieces = await fetch(connect(serve(answer).url))
    assert (response.status, response.reason, pieces) == (418, b"I'm  a Teapot", [])
    assert response.headers == [
        (b"X-B", b"1"),
        (b"x-a", b""),
        (b"x-b", b"two words"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
        (b"CONTENT-LENGTH", b"0"),
    ]


async def test_each_piece_comes_out_as_it_went_in_and_at_once(serve, connect):
    # Cut through CRLF, through a character, and with two events in one piece.
    events = [b"data: a\r", b"\n\r\ndata: \xe2\x82", b"\xac\n\ndata: c\n\ndata: [DONE]\n\n", b"\0"]
    taken = asyncio.Semaphore(0)

    async def one_by_one(peer):
        await peer.answer(CHUNKED)
        for event in events:
            await peer.send(chunk(event))
            await taken.acquire()  # the next one leaves only when this one has arrived
        await peer.send(b"0\r\n\r\n")

    response = await start(connect(serve(one_by_one).url))
    for event in events:
        assert await response.read(5) == event
        taken.release()
    assert await response.read(5) == b""


async def test_chunks_that_arrive_together_stay_apart(serve, connect, fetch):
    events = [b"data: %d\n\n" % n for n in range(50)]

    async def all_at_once(peer):
        await peer.answer(CHUNKED + b"".join(map(chunk, events)) + b"0\r\n\r\n")

    _, pieces = await fetch(connect(serve(all_at_once).url))
    assert pieces == events


async def test_reading_what_is_here_does_not_wait(serve, connect):
    async def answer(peer):
        await peer.answer(CHUNKED + chunk(b"one") + chunk(b"two") + b"0\r\n\r\n")

    response = await start(connect(serve(answer).url))
    turns = 0

    async def count_turns_of_the_loop():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns_of_the_loop())
    assert [await response.read() for _ in range(3)] == [b"one", b"two", b""]
    assert turns == 0
    counting.cancel()


async def test_chunk_extensions_and_trailers_are_dropped(serve, connect, fetch):
    async def answer(peer):
        while await peer.answer(
            CHUNKED + chunk(b"hello", b';name="v"') + b"0;last\r\nX-Sum: 1\r\nX-Two: 2\r\n\r\n"
        ):
            pass

    upstream = connect(serve(answer).url)
    for _ in range(2):
        response, pieces = await fetch(upstream)
        assert pieces == [b"hello"]
        assert response.headers == [(b"Transfer-Encoding", b"chunked")]
    assert upstream.stats().reuses == 1


@pytest.mark.parametrize(
    "head", [b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n"], ids=repr
)
async def test_a_body_without_length_ends_with_the_connection(serve, connect, fetch, head):
    async def answer(peer):
        await peer.answer(head + b"hello")
        peer.close()

    upstream = connect(serve(answer).url)
    response, pieces = await fetch(upstream)
    assert (pieces, response.complete, upstream.stats().open) == ([b"hello"], True, 0)


async def test_a_body_without_length_that_is_reset_is_cut(serve, connect):
    read = asyncio.Event()

    async def answer(peer):
        await peer.answer(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await read.wait()
        peer.reset()

    response = await start(connect(serve(answer).url))
    assert await response.read(5) == b"hello"
    read.set()
    with pytest.raises(UpstreamError):
        await response.read(5)
    assert not response.complete


@pytest.mark.parametrize(
    ("method", "head"),
    [
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        (b"HEAD", CHUNKED),
        (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
    ],
    ids=repr,
)
async def test_responses_without_body_end_at_their_head(serve, connect, fetch, method, head):
    async def answer(peer):
        while await peer.answer(head):
            pass

    upstream = connect(serve(answer).url)
    for _ in range(3):
        response, pieces = await fetch(upstream, method, b"")
        assert (response.complete, pieces) == (True, [])
    assert upstream.stats().connects == 1


async def test_a_response_to_head_leaves_the_connection_fit_for_get(serve, connect, fetch):
    async def answer(peer):
        while request := await peer.request():
            body = b"" if request.startswith(b"HEAD") else b"hello"
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + body)

    upstream = connect(serve(answer).url)
    for method in (b"HEAD", b"GET", b"HEAD", b"GET"):
        _, pieces = await fetch(upstream, method, b"")
        assert b"".join(pieces) == (b"" if method == b"HEAD" else b"hello")
    assert upstream.stats().connects == 1


async def test_interim_responses_are_skipped(serve, connect, fetch):
    interim = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        b"HTTP/1.1 102 Processing\r\n\r\n"
    )

    async def answer(peer):
        await peer.answer(interim, b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok")

    response, pieces = await fetch(connect(serve(answer).url))
    assert (response.status, response.reason, pieces) == (200, b"", [b"ok"])
    assert response.headers == [(b"Content-Length", b"2")]


@pytest.mark.parametrize("framing", ["length", "chunks", "tiny chunks"])
async def test_a_reader_that_does_not_read_stops_the_server(serve, connect, until, framing):
    size = 4 * MIB if framing == "tiny chunks" else 64 * MIB
    sent = 0
    if framing == "length":
        head, piece = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size, bytes(MIB)
    elif framing == "chunks":
        head, piece = CHUNKED, chunk(bytes(MIB))
    else:
        head, piece = CHUNKED, chunk(b"ab") * (MIB // 2)

    async def flood(peer):
        nonlocal sent
        await peer.answer(head)
        for _ in range(size // MIB):
            await peer.send(piece)
            sent += len(piece)
        if head == CHUNKED:
            await peer.send(b"0\r\n\r\n")

    server = serve(flood)
    response = await start(connect(server.url))
    connection = response._connection
    (peer,) = server.peers
    await until(lambda: not connection._transport.is_reading() and not peer.can_send())
    assert sent < len(piece) * size // MIB
    # What makes it pause, and what one read may still bring: of tiny chunks, with their cost.
    assert 0 < connection.parser.unread_cost < (4 * MIB if framing == "tiny chunks" else MIB)

    received = 0
    while data := await response.read(5):
        received += len(data)
    assert received == size


async def test_a_connection_that_was_paused_serves_again(serve, connect, until):
    async def answer(peer):
        body = bytes(2 * MIB)
        while await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body):
            pass

    upstream = connect(serve(answer).url)
    for _ in range(3):
        response = await start(upstream)
        transport = response._connection._transport
        await until(lambda transport=transport: not transport.is_reading())
        received = 0
        while data := await response.read(5):
            received += len(data)
        assert received == 2 * MIB
    assert upstream.stats().connects == 1


async def test_a_large_request_arrives_whole(serve, connect, fetch):
    requests = []

    async def answer(peer):
        while request := await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"):
            requests.append(request)

    upstream = connect(serve(answer).url)
    body = bytes(range(256)) * (16 * MIB // 256)
    await fetch(upstream, body=body)
    await fetch(upstream, body=body[:100_000])
    assert [r.partition(b"\r\n\r\n")[2] for r in requests] == [body, body[:100_000]]
    assert upstream.stats().connects == 1


async def test_a_response_to_a_half_sent_request_counts_and_ends_the_connection(
    serve, connect, fetch
):
    async def refuse_before_reading(peer):
        await peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")

    server = serve(refuse_before_reading)
    upstream = connect(server.url)
    response, pieces = await fetch(upstream, body=bytes(32 * MIB))
    assert (response.status, pieces, response.complete) == (413, [b"big"], True)
    assert upstream.stats().open == 0
    await server.left()


async def test_a_response_may_flow_while_its_request_is_still_being_sent(serve, connect, fetch):
    body = bytes(16 * MIB)

    async def begin_early(peer):
        await peer.send(CHUNKED + chunk(b"early"))
        request = await peer.request()
        await peer.send(chunk(b"%d" % len(request.partition(b"\r\n\r\n")[2])) + b"0\r\n\r\n")

    _, pieces = await fetch(connect(serve(begin_early).url), body=body)
    assert pieces == [b"early", b"%d" % len(body)]


async def test_silence_in_a_body_ends_in_a_timeout_and_a_closed_connection(serve, connect):
    async def stall(peer):
        await peer.answer(CHUNKED + chunk(b"one"))

    server = serve(stall)
    response = await start(connect(server.url))
    assert await response.read(0.05) == b"one"
    with pytest.raises(UpstreamTimeout, match=r"within 0\.05 s") as caught:
        await response.read(0.05)
    assert caught.value.response_started
    await server.left()


async def test_each_piece_has_its_own_time(serve, connect):
    async def drip(peer):
        await peer.answer(CHUNKED)
        for _ in range(10):
            await asyncio.sleep(0.03)
            await peer.send(chunk(b"x"))
        await peer.send(b"0\r\n\r\n")

    response = await start(connect(serve(drip).url))
    pieces = 0
    while await response.read(0.25):  # less than all of it takes
        pieces += 1
    assert pieces == 10
