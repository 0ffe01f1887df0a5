"""Asking for a slot while holding one fails at once where it could only hang."""

from __future__ import annotations

import asyncio

import pytest

import forebay
from support.configs import entry
from support.sessions import inflight, waiting
from support.virtual_loop import VirtualLoop
from support.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return ("asyncio", {"loop_factory": VirtualLoop})


async def test_the_only_slot_cannot_be_had_twice(config) -> None:
    async with forebay.open(config(embedding=1)) as fb, fb.slot("embed"):
        with pytest.raises(forebay.UsageError, match="'embed', which can never be free"):
            async with fb.slot("embed"):
                pass
        assert (inflight(fb), waiting(fb)) == (1, 0)


async def test_a_second_slot_is_had_where_there_is_one(config) -> None:
    async with forebay.open(config(embedding=2)) as fb, fb.slot("embed"), fb.slot("embed"):
        assert inflight(fb) == 2
        with pytest.raises(forebay.UsageError):
            async with fb.slot("embed"):
                pass


async def test_a_held_slot_that_others_could_free_is_waited_for(config) -> None:
    async with forebay.open(config(embedding=2)) as fb, fb.slot("embed"):
        other = fb.try_slot("embed")
        asyncio.get_running_loop().call_later(1, other.give_back)
        async with fb.slot("embed", timeout=5):
            assert inflight(fb) == 2


async def test_a_budget_that_is_held_whole_cannot_be_had_again(config) -> None:
    path = config(chat=4, embedding=4, budget=3)  # one of the three is reserved for chat
    async with forebay.open(path) as fb, fb.slot("embed"), fb.slot("embed"):
        with pytest.raises(forebay.UsageError):
            async with fb.slot("embed"):
                pass
        async with fb.slot("chat"):
            with pytest.raises(forebay.UsageError):
                async with fb.slot("chat"):
                    pass


async def test_another_model_can_be_asked_inside_a_slot(config) -> None:
    path = config(chat=1, embedding=1)
    async with forebay.open(path) as fb, fb.slot("embed"), fb.slot("chat"):
        assert inflight(fb) == 2


async def test_of_two_tasks_that_wait_for_each_other_one_is_told(config) -> None:
    async with forebay.open(config(embedding=2)) as fb:
        both_hold = asyncio.Barrier(2)

        async def twice() -> str:
            async with fb.slot("embed"):
                await both_hold.wait()
                async with fb.slot("embed"):
                    return "done"

        results = await asyncio.gather(twice(), twice(), return_exceptions=True)
        assert {type(result) for result in results} == {str, forebay.UsageError}
        assert inflight(fb) == 0


async def test_two_models_taken_in_opposite_order_do_not_hang(config) -> None:
    async with forebay.open(config(chat=1, embedding=1)) as fb:
        both_hold = asyncio.Barrier(2)

        async def take(first: str, second: str) -> str:
            async with fb.slot(first):
                await both_hold.wait()
                async with fb.slot(second):
                    return "done"

        results = await asyncio.gather(
            take("chat", "embed"), take("embed", "chat"), return_exceptions=True
        )
        assert {type(result) for result in results} == {str, forebay.UsageError}
        assert inflight(fb) == 0


async def test_a_map_inside_the_only_slot_is_told(config) -> None:
    async def echo(item: int) -> int:
        return item

    async with forebay.open(config(embedding=1)) as fb, fb.slot("embed"):
        with pytest.raises(forebay.UsageError):
            await fb.map_concurrent(echo, range(3), model="embed")


async def test_a_slot_inside_a_map_of_the_same_model_is_told(config) -> None:
    async with forebay.open(config(embedding=2)) as fb:

        async def nested(item: int) -> int:
            async with fb.slot("embed"):
                return item

        results = await fb.map_concurrent(nested, range(6), model="embed", on_error="collect")
        assert {type(result) for result in results} <= {int, forebay.UsageError}
        assert inflight(fb) == 0


async def test_a_task_that_a_block_starts_does_not_hold_its_slot(config) -> None:
    async with forebay.open(config(embedding=1)) as fb:

        async def later() -> str:
            async with fb.slot("embed"):
                return "done"

        async with fb.slot("embed"):
            started = asyncio.create_task(later())
            await eventually(lambda: waiting(fb) == 1)
        assert await started == "done"


async def test_a_heavy_request_that_runs_alone_cannot_run_inside_another(write) -> None:
    heavy = entry("heavy", "http://127.0.0.1:9/v1", ceiling=4, engine="unknown", slot_weight=8)
    path = write({"embedding_models": [heavy], "forebay": {"limit": "fixed"}})
    async with forebay.open(path) as fb, fb.slot("heavy"):
        with pytest.raises(forebay.UsageError):
            async with fb.slot("heavy"):
                pass


async def test_the_current_lease_is_the_innermost_of_the_task(config) -> None:
    async with forebay.open(config()) as fb:
        async with fb.slot("chat") as outer:
            async with fb.slot("embed") as inner:
                assert fb.current_lease() is inner
            assert fb.current_lease() is outer
        with pytest.raises(forebay.UsageError, match="holds no slot"):
            fb.current_lease()
