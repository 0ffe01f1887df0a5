"""Clients that leave, at whatever moment: the endpoint is let off and the slot is free at once."""

from __future__ import annotations

import asyncio
import random

import anyio
import pytest

from forebay.emulator.faults import Hang, Stall
from support.configs import emulated, one_chat
from support.endpoint import Endpoint
from support.http_responses import STREAM, chunk, event, json_response
from support.waiting import eventually
from support.wire import Answer, connected

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
TIMES = 50
# A client that closes its socket, one whose process was killed, and one that only stops sending.
WAYS = [lambda wire: wire.leave(), lambda wire: wire.reset(), lambda wire: wire.half_close()]


def long_chat(model="chat", *, stream=True):
    return {
        "model": model,
        "messages": [{"role": "user", "content": "go on"}],
        "stream": stream,
        "max_tokens": 4000,
        "ignore_eos": True,
    }


def short_chat(model="chat"):
    return {**long_chat(model, stream=False), "max_tokens": 2}


async def let_off(host, running):
    """Nothing is in flight within a second, neither here nor at the endpoint."""
    await eventually(lambda: running.idle, within_s=1)
    await eventually(lambda: host.record()["gpu"]["inflight"] == 0, within_s=1)


async def is_served_at_once(running):
    with anyio.fail_after(1):
        async with connected(running.port) as wire:
            answer = await wire.ask("POST", CHAT, short_chat())
    assert answer.status == 200
    assert int(answer.head["x-forebay-queued-ms"]) < 100


@pytest.fixture
async def one_slot(host, gateway):
    """A gateway that lets one chat through at a time."""
    return await gateway(emulated(host, chat=1, budget=2))


@pytest.mark.parametrize("stream", [True, False])
async def test_while_queued(host, one_slot, stream):
    async with connected(one_slot.port) as ahead:
        await ahead.send("POST", CHAT, long_chat())
        await ahead.head()
        for number in range(TIMES):
            async with connected(one_slot.port) as wire:
                await wire.send("POST", CHAT, long_chat(stream=stream))
                await eventually(lambda: one_slot.queued == 1)
                WAYS[number % len(WAYS)](wire)
                await eventually(lambda: one_slot.queued == 0, within_s=1)
        assert host.record()["chat"]["requests"] == 1
    await let_off(host, one_slot)
    await is_served_at_once(one_slot)


@pytest.mark.parametrize("stream", [True, False])
async def test_before_the_endpoint_has_answered(host, one_slot, stream):
    host.faults.add(Hang(engine="chat", next=TIMES))
    for number in range(TIMES):
        async with connected(one_slot.port) as wire:
            await wire.send("POST", CHAT, long_chat(stream=stream))
            await eventually(lambda: host.record()["chat"]["inflight"] == 1)
            WAYS[number % len(WAYS)](wire)
            await let_off(host, one_slot)
    await is_served_at_once(one_slot)


@pytest.mark.parametrize("size", [100_000, 3_000_000])
@pytest.mark.parametrize("queued", [True, False])
async def test_after_a_large_body(host, one_slot, size, queued):
    body = {**long_chat(), "user": "x" * size}
    async with connected(one_slot.port) as ahead:
        if queued:
            await ahead.send("POST", CHAT, long_chat())
            await ahead.head()
        else:
            host.faults.add(Hang(engine="chat", next=len(WAYS)))
        for way in WAYS:
            async with connected(one_slot.port) as wire:
                await wire.send("POST", CHAT, body)
                if queued:
                    await eventually(lambda: one_slot.queued == 1)
                else:
                    await eventually(lambda: host.record()["chat"]["inflight"] == 1)
                way(wire)
                await eventually(lambda: one_slot.queued == 0, within_s=1)
                await eventually(lambda: one_slot.inflight == int(queued), within_s=1)
    await let_off(host, one_slot)
    await is_served_at_once(one_slot)


async def test_in_the_middle_of_a_stream(host, one_slot):
    for number in range(TIMES):
        async with connected(one_slot.port) as wire:
            await wire.send("POST", CHAT, long_chat())
            await wire.head()
            for _ in range(3):
                await wire.piece()
            WAYS[number % len(WAYS)](wire)
            await let_off(host, one_slot)
    await is_served_at_once(one_slot)
    record = host.record()["chat"]
    assert (record["aborted"], record["finished"]) == (TIMES, 1)
    assert one_slot.counted("forebay_requests_total", outcome="cancelled") == TIMES
    assert one_slot.breaker("chat")["failures"] == 0


async def test_while_the_endpoint_computes_a_plain_answer(host, one_slot):
    for number in range(TIMES):
        async with connected(one_slot.port) as wire:
            await wire.send("POST", CHAT, long_chat(stream=False))
            await eventually(lambda: host.record()["chat"]["engine"]["sequences_running"] == 1)
            WAYS[number % len(WAYS)](wire)
            await let_off(host, one_slot)
    await is_served_at_once(one_slot)


async def test_while_the_stream_stands_still(host, one_slot):
    host.faults.add(Stall(engine="chat", after_chunks=3, next=TIMES))
    for number in range(TIMES):
        async with connected(one_slot.port) as wire:
            await wire.send("POST", CHAT, long_chat())
            await wire.head()
            for _ in range(3):
                await wire.piece()
            WAYS[number % len(WAYS)](wire)
            await let_off(host, one_slot)
    await is_served_at_once(one_slot)


async def test_while_it_sends_its_body(host, one_slot):
    for number in range(TIMES):
        async with connected(one_slot.port) as wire:
            await wire.send("POST", CHAT, None, [("Content-Length", "1000")])
            await wire.write(b'{"model":"chat",')
            WAYS[number % len(WAYS)](wire)
            await wire.closed()
    assert host.record()["gpu"]["requests"] == 0
    assert one_slot.idle
    await is_served_at_once(one_slot)


@pytest.mark.parametrize("queued", [True, False])
async def test_while_comments_keep_it_alive(host, gateway, queued):
    running = await gateway(emulated(host, chat=1, forebay={"sse_keepalive_s": 0.005}))
    async with connected(running.port) as ahead:
        if queued:
            await ahead.send("POST", CHAT, long_chat())
            await eventually(lambda: running.inflight == 1)
        host.faults.add(Hang(engine="chat", next=TIMES))
        for number in range(TIMES):
            async with connected(running.port) as wire:
                await wire.send("POST", CHAT, long_chat())
                await wire.head()
                assert await wire.piece() == b": keep-alive\n\n"
                WAYS[number % len(WAYS)](wire)
                await eventually(lambda: running.queued == 0, within_s=1)
                await eventually(lambda: running.inflight == int(queued), within_s=1)
        host.faults.clear()
    await let_off(host, running)
    await is_served_at_once(running)


async def test_at_the_moment_in_which_it_gets_its_slot(host, one_slot):
    """The one ahead ends and the one behind leaves in the same turn of the loop, or nearly."""
    for _ in range(TIMES):
        async with connected(one_slot.port) as ahead, connected(one_slot.port) as behind:
            await ahead.send("POST", CHAT, long_chat())
            await ahead.head()
            await behind.send("POST", CHAT, long_chat())
            await eventually(lambda: one_slot.queued == 1)
            ahead.reset()
            behind.reset()
            await let_off(host, one_slot)
    await is_served_at_once(one_slot)


async def test_a_pipelined_request_does_not_hide_that_the_client_left(host, one_slot):
    for number in range(TIMES):
        async with connected(one_slot.port) as wire:
            await wire.send("POST", CHAT, long_chat())
            await wire.head()
            await wire.send("POST", CHAT, long_chat())
            await wire.piece()
            WAYS[number % len(WAYS)](wire)
            await let_off(host, one_slot)
    await is_served_at_once(one_slot)
    assert host.record()["chat"]["requests"] == TIMES + 1


async def test_half_close_with_an_answer_that_is_not_read(serve, gateway):
    async def script(peer):
        await peer.answer(STREAM, chunk(event("go")))
        while True:
            await peer.send(chunk(event("x" * 30_000)))

    server = serve(script)
    running = await gateway(one_chat(server.url))
    async with connected(running.port, receive_buffer=4096) as wire:
        await wire.send("POST", CHAT, {"model": "m", "stream": True})
        await wire.head()
        wire.half_close()
        await eventually(lambda: running.idle, within_s=1)
        await server.left()


async def test_an_answer_that_is_there_is_kept_from_nobody_who_half_closes(serve, gateway):
    """`Connection: close` clients may shut their side once they have sent everything."""
    endpoint = Endpoint(serve, json_response({"text": "x" * 60_000}))
    running = await gateway(one_chat(endpoint.url))
    async with connected(running.port, receive_buffer=4096) as wire:
        await wire.send("POST", CHAT, {"model": "m"}, [("Connection", "close")])
        head = await wire.head()
        await eventually(lambda: running.counted("forebay_requests_total", outcome="ok") == 1)
        wire.half_close()
        answer = Answer(head, await wire.rest())
    assert len(answer.json["text"]) == 60_000


async def test_any_moment_whatever(host, gateway):
    """Clients of both models that leave at random; every count is zero in the end."""
    running = await gateway(
        emulated(host, chat=3, embedding=3, budget=4, forebay={"sse_keepalive_s": 0.01})
    )
    rng = random.Random(7)
    over = []

    async def client(seed):
        dice = random.Random(seed)
        async with connected(running.port) as wire:
            if dice.random() < 0.6:
                body = {**long_chat(stream=dice.random() < 0.7), "max_tokens": dice.randint(1, 60)}
                await wire.send("POST", CHAT, body)
            else:
                body = {"model": "embedding", "input": ["a b c"] * dice.randint(1, 8)}
                await wire.send("POST", "/v1/embeddings", body)
            whole = asyncio.create_task(wire.closed())
            await asyncio.wait([whole], timeout=dice.choice([0, 0.001, 0.01, 0.05, 0.3]))
            dice.choice(WAYS[:2])(wire)
            whole.cancel()
            await asyncio.wait([whole])

    async def watch():
        while True:
            over.append(running.inflight)
            await anyio.sleep(0.002)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        async with anyio.create_task_group() as clients:
            for seed in range(400):
                clients.start_soon(client, seed)
                await anyio.sleep(rng.choice([0, 0, 0.001, 0.005]))
        tasks.cancel_scope.cancel()
    await let_off(host, running)
    assert max(over) == 4
    assert min(over) >= 0
    assert host.record()["gpu"]["max_inflight"] <= 4
    assert running.deployment.limiter.admission.live == 0
    for breaker in (running.breaker("chat"), running.breaker("embedding")):
        assert (breaker["state"], breaker["trips"]) == ("closed", 0)
    await is_served_at_once(running)
