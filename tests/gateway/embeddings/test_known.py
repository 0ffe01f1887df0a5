"""Inputs in flight on an endpoint that counts them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.adapters.engines.batching import BatchLimits
from forebay.proxy.embeddings.known import KnownEndpoint

pytestmark = pytest.mark.anyio


@dataclass
class Told:
    """What an engine tells."""

    batch_limits: BatchLimits = field(default_factory=BatchLimits)


@dataclass
class Target:
    scraper: Told
    batch_limits: BatchLimits = field(default_factory=BatchLimits)
    id: str = "m@a"
    name: str = "endpoint 'm@a'"


def endpoint(**limits):
    return KnownEndpoint(Target(Told(BatchLimits(**limits))))


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_stricter_of_what_is_told_and_learnt_holds():
    known = endpoint(max_inputs=32, max_inputs_in_flight=64)
    assert known.limits.max_inputs == 32
    known.learn(BatchLimits(max_inputs=8))
    known.learn(BatchLimits(max_inputs=16, max_body_bytes=100))
    assert known.limits == BatchLimits(8, 100, 64)
    known.target.scraper.batch_limits = BatchLimits(max_inputs=4)
    assert known.limits == BatchLimits(4, 100, None)
    known.target.scraper.batch_limits = BatchLimits()
    assert known.limits == BatchLimits(8, 100, None)


def test_what_is_configured_counts_in_the_place_of_what_is_told():
    told = Told(BatchLimits(max_inputs=32, max_body_bytes=2_000_000))
    known = KnownEndpoint(Target(told, BatchLimits(max_body_bytes=8_000_000, max_tokens=500)))
    assert known.limits == BatchLimits(32, 8_000_000, None, 500)
    known.learn(BatchLimits(max_tokens=300))
    assert known.limits.max_tokens == 300


def test_what_was_found_is_believed_for_a_while():
    now = 0.0
    known = KnownEndpoint(Target(Told(BatchLimits(max_inputs=32))), lambda: now)
    known.find(BatchLimits(max_tokens=100))
    known.find(BatchLimits(max_inputs=8))
    assert known.limits == BatchLimits(max_inputs=8, max_tokens=100)
    now = 599.0
    assert known.limits.max_tokens == 100
    now = 600.0
    assert known.limits == BatchLimits(max_inputs=32)
    known.find(BatchLimits(max_inputs=16))
    assert known.limits == BatchLimits(max_inputs=16)


async def test_without_a_limit_nobody_waits():
    known = endpoint()
    for _ in range(100):
        await known.room(1000, 0)


async def test_who_comes_first_gets_room_first():
    known = endpoint(max_inputs_in_flight=10)
    served = []

    async def piece(name, inputs, go_on):
        await known.room(inputs, inf)
        with known.working(inputs):
            served.append(name)
            await go_on.wait()

    gates = [asyncio.Event() for _ in range(4)]
    sizes = [("a", 6), ("large", 10), ("small", 1), ("b", 9)]
    async with asyncio.TaskGroup() as tasks:
        for (name, inputs), gate in zip(sizes, gates, strict=True):
            tasks.create_task(piece(name, inputs, gate))
        await turns()
        assert served == ["a"]  # small would fit, but large was first
        gates[0].set()
        await turns()
        assert served == ["a", "large"]
        gates[1].set()
        await turns()
        assert served == ["a", "large", "small", "b"]
        gates[2].set()
        gates[3].set()
    assert known.pieces == 0


async def test_who_gives_up_lets_the_others_pass():
    known = endpoint(max_inputs_in_flight=10)
    await known.room(6, inf)
    with known.working(6):
        large = asyncio.create_task(known.room(10, inf))
        small = asyncio.create_task(known.room(4, inf))
        await turns()
        assert not small.done()
        large.cancel()
        await turns()
        assert small.done()


async def test_nobody_waits_beyond_the_deadline():
    known = endpoint(max_inputs_in_flight=1)
    await known.room(1, inf)
    with pytest.raises(TimeoutError):
        await known.room(1, asyncio.get_running_loop().time() + 0.01)
    with known.working(1):
        pass
    await known.room(1, 0)


@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 6), st.integers(-1, 6)), max_size=12),
)
def test_the_sum_never_exceeds_what_it_takes(most, pieces):
    """Pieces of a size, that work for some turns; some are cancelled after some turns."""

    async def run():
        known = endpoint(max_inputs_in_flight=most)
        held = 0

        async def piece(inputs, work):
            nonlocal held
            await known.room(inputs, inf)
            with known.working(inputs):
                held += inputs
                try:
                    assert held <= most
                    await turns(work)
                finally:
                    held -= inputs

        async def one(inputs, work, cancel_after):
            task = asyncio.create_task(piece(min(inputs, most), work))
            if cancel_after >= 0:
                await turns(cancel_after)
                task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

        async with asyncio.timeout(5):
            await asyncio.gather(*(one(*each) for each in pieces))
        assert known.pieces == 0
        await asyncio.wait_for(known.room(most, inf), 1)  # all of it has come back

    asyncio.run(run())
