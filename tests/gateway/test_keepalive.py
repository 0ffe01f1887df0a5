"""The comments' own state: stopping them neither loses a cancellation nor sends another one."""

from __future__ import annotations

import asyncio

import pytest

from forebay.proxy.keepalive import KeepAlive
from support.waiting import eventually

pytestmark = pytest.mark.anyio


class Client:
    """A client that takes nothing while `reads` is not set."""

    def __init__(self):
        self.started = self.event_stream = False
        self.reads = asyncio.Event()
        self.got = []

    def start(self, *_):
        self.started = True

    async def write(self, piece):
        await self.reads.wait()
        self.got.append(piece)

    async def end(self, piece=b""):
        self.got.append(piece)

    def cut(self):
        pass


async def begun(client):
    """Comments of which the first one is under way."""
    keepalive = KeepAlive(client, [], 0.001)
    await eventually(lambda: client.started)
    return keepalive


@pytest.mark.parametrize("turns", range(4))
async def test_who_stops_them_can_be_cancelled_meanwhile(turns):
    keepalive = await begun(Client())
    stopping = asyncio.create_task(keepalive.stop())
    for _ in range(turns):
        await asyncio.sleep(0)
    was_done = stopping.done()
    stopping.cancel()
    (result,) = await asyncio.gather(stopping, return_exceptions=True)
    assert was_done or isinstance(result, asyncio.CancelledError)


async def test_nothing_is_sent_after_they_are_stopped():
    client = Client()
    keepalive = await begun(client)
    client.reads.set()
    await eventually(lambda: len(client.got) >= 3)
    await keepalive.stop()
    sent = len(client.got)
    await asyncio.sleep(0.01)
    assert len(client.got) == sent
    await keepalive.stop()  # once more does no harm


async def test_stopped_before_the_first_one_nothing_is_committed():
    client = Client()
    keepalive = KeepAlive(client, [], 0.001)
    await keepalive.stop()
    await asyncio.sleep(0.01)
    assert not client.started
