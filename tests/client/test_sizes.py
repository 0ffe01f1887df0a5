"""The library's slots count what a request is, by a weight or by its size."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import forebay
from support.configs import entry
from support.sessions import inflight, waiting
from support.virtual_loop import VirtualLoop
from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return ("asyncio", {"loop_factory": VirtualLoop})


@pytest.fixture
def path(write) -> Path:
    """An embedder on which 100 tokens take a slot, and chat, with six slots for both."""
    nowhere = "http://127.0.0.1:9/v1"
    embed = entry("embed", nowhere, ceiling=32, engine="unknown", tokens_per_slot=100)
    return write(
        {
            "chat_models": [entry("chat", nowhere, engine="unknown", slot_weight=2, floor=2)],
            "embedding_models": [embed],
            "forebay": {"limit": "fixed"},
            "GPU_CONCURRENCY_BUDGETS": {"gpu": 6},
        }
    )


async def test_a_request_takes_slots_by_its_tokens(path) -> None:
    async with forebay.open(path) as fb:
        async with fb.slot("embed", tokens=250):
            assert inflight(fb) == 3
            assert fb.try_slot("embed", tokens=100.5) is None
            with fb.try_slot("embed", tokens=99.5):
                assert inflight(fb) == 4
        assert inflight(fb) == 0


async def test_a_weight_counts_as_it_is(path) -> None:
    async with forebay.open(path) as fb:
        with fb.try_slot("chat"), fb.try_slot("chat", weight=1), fb.try_slot("embed", weight=3):
            assert inflight(fb) == 6
        assert inflight(fb) == 0


@pytest.mark.parametrize("size", [{"tokens": 10**9}, {"weight": 100}])
async def test_one_larger_than_the_budget_runs_alone(path, size) -> None:
    async with forebay.open(path) as fb, fb.slot("embed", **size):
        assert inflight(fb) == 4, "all but chat's floor"
        assert fb.try_slot("embed") is None
        with fb.try_slot("chat"):
            assert inflight(fb) == 6


async def test_one_that_waits_gathers_the_slots_that_it_asked_for(path) -> None:
    async with forebay.open(path) as fb:
        held = [fb.try_slot("embed") for _ in range(4)]

        async def ask() -> int:
            async with fb.slot("embed", tokens=300):
                return inflight(fb)

        asking = asyncio.create_task(ask())
        await eventually(lambda: waiting(fb) == 1)
        for lease in held[:3]:
            assert not asking.done()
            lease.give_back()
        assert await asking == 4
        held[3].give_back()


async def test_items_of_a_fan_out_take_slots_by_their_size(path) -> None:
    seen = []

    async def embed(texts: list[str]) -> int:
        seen.append(inflight(fb))
        await asyncio.sleep(1)
        return len(texts)

    async with forebay.open(path) as fb:
        batches = [["x" * 400] * count for count in (3, 1, 2, 9, 1)]
        assert await fb.map_concurrent(embed, batches, model="embed") == [3, 1, 2, 9, 1]
        assert inflight(fb) == 0
    assert seen == [4, 4, 2, 4, 1], "3 and 1 at once, 2, all of 9 alone, 1"


async def test_an_item_keeps_its_size_while_the_endpoint_is_away(path) -> None:
    async with forebay.open(path) as fb:
        for _ in range(3):
            with pytest.raises(ConnectionError):
                async with fb.slot("embed"):
                    raise ConnectionError
        with pytest.raises(forebay.Rejected):
            fb.try_slot("embed")

        async def embed(_: str) -> int:
            return inflight(fb)

        assert await fb.map_concurrent(embed, ["x" * 800], model="embed") == [2]


async def test_an_item_whose_size_cannot_be_told_fails_by_itself(path) -> None:
    def size(item: int) -> float:
        return 100 / item

    async def echo(item: int) -> int:
        return item

    async with forebay.open(path) as fb:
        results = await fb.map_concurrent(
            echo, [1, 0, 2], model="embed", size=size, on_error="collect"
        )
        assert results[::2] == [1, 2]
        assert isinstance(results[1], ZeroDivisionError)
        with pytest.raises(ZeroDivisionError):
            await fb.map_concurrent(echo, [1, 0, 2], model="embed", size=size)
        assert inflight(fb) == 0


async def test_a_slot_that_can_never_come_is_found_by_its_size(path) -> None:
    async with forebay.open(path) as fb, fb.slot("embed", tokens=200):
        async with fb.slot("embed", tokens=200):
            pass
        with pytest.raises(forebay.UsageError, match="can never be free"):
            async with fb.slot("embed", tokens=201):
                pass


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ({"weight": 0}, "weight is 0"),
        ({"weight": 2, "tokens": 3}, "not both"),
        ({"tokens": -1}, "tokens is -1"),
        ({"tokens": float("nan")}, "tokens is nan"),
        ({"tokens": float("inf")}, "tokens is inf"),
    ],
)
async def test_a_size_that_makes_no_sense_is_refused(path, size, said) -> None:
    async with forebay.open(path) as fb:
        with pytest.raises(ValueError, match=said):
            fb.try_slot("embed", **size)
        assert inflight(fb) == 0
