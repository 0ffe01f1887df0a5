"""One function over many items: in order, complete, never wider than the limit, nothing left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import forebay
from support.sessions import inflight, waiting
from support.virtual_loop import on_virtual_time
from support.waiting import eventually

anyio_test = pytest.mark.anyio
# The fixture only writes files.
many = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


async def echo(item: Any) -> Any:
    await asyncio.sleep(0)
    return item


@many
@given(
    durations=st.lists(st.integers(0, 9), max_size=30),
    limit=st.integers(1, 6),
    lazy=st.sampled_from([list, iter, "async"]),
)
def test_every_item_has_its_result_in_its_place(config, durations, limit, lazy) -> None:
    async def main() -> None:
        async def each():
            for index, duration in enumerate(durations):
                await asyncio.sleep(duration % 3)
                yield index, duration

        async def work(item: tuple[int, int]) -> int:
            nonlocal most
            most = max(most, inflight(fb))
            await asyncio.sleep(item[1])
            return item[0]

        most = 0
        async with forebay.open(config(embedding=limit)) as fb:
            items = each() if lazy == "async" else lazy(enumerate(durations))
            results = await fb.map_concurrent(work, items, model="embed")
            assert results == list(range(len(durations)))
            assert most <= limit
            assert inflight(fb) == waiting(fb) == 0

    on_virtual_time(main())


@many
@given(
    fates=st.lists(st.sampled_from(["ok", "error", "cancelled"]), max_size=20),
    limit=st.integers(1, 4),
)
def test_collecting_keeps_every_error_in_its_place(config, fates, limit) -> None:
    async def main() -> list[Any]:
        async def work(fate: str) -> str:
            await asyncio.sleep(1)
            if fate == "error":
                raise ValueError(fate)
            if fate == "cancelled":
                raise asyncio.CancelledError
            return fate

        async with forebay.open(config(embedding=limit)) as fb:
            results = await fb.map_concurrent(work, fates, model="embed", on_error="collect")
            assert inflight(fb) == 0
            return results

    kinds = {"ok": str, "error": ValueError, "cancelled": asyncio.CancelledError}
    assert [type(result) for result in on_virtual_time(main())] == [kinds[fate] for fate in fates]


@many
@given(
    durations=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    limit=st.integers(1, 4),
    steps=st.integers(0, 60),
)
def test_cancelling_it_at_any_step_leaves_nothing(config, durations, limit, steps) -> None:
    async def main() -> None:
        async with forebay.open(config(embedding=limit)) as fb:
            before = asyncio.all_tasks()
            mapping = asyncio.create_task(
                fb.map_concurrent(asyncio.sleep, durations, model="embed")
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            mapping.cancel()
            await asyncio.wait([mapping])
            assert mapping.cancelled() or len(mapping.result()) == len(durations)
            assert asyncio.all_tasks() == before
            assert inflight(fb) == waiting(fb) == 0
            async with fb.slot("embed", timeout=1):
                pass

    on_virtual_time(main())


@many
@given(fail_at=st.integers(0, 12), limit=st.integers(1, 4), where=st.sampled_from(["fn", "items"]))
def test_the_first_error_ends_everything(config, fail_at, limit, where) -> None:
    async def main() -> None:
        finished: list[int] = []
        cancelled: list[int] = []

        def items():
            for item in range(12):
                if where == "items" and item == fail_at:
                    raise ValueError(item)
                yield item

        async def work(item: int) -> None:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                cancelled.append(item)
                raise
            if where == "fn" and item == fail_at:
                raise ValueError(item)
            await asyncio.sleep(1)
            finished.append(item)

        async with forebay.open(config(embedding=limit)) as fb:
            before = asyncio.all_tasks()
            if fail_at < 12:
                expected = forebay.ItemsError if where == "items" else ValueError
                with pytest.raises(expected, match=str(fail_at)):
                    await fb.map_concurrent(work, items(), model="embed")
            else:
                await fb.map_concurrent(work, items(), model="embed")
            assert asyncio.all_tasks() == before
            assert inflight(fb) == waiting(fb) == 0
            assert not set(finished) & set(cancelled)

    on_virtual_time(main())


def test_errors_while_others_are_cancelled_do_not_hide_the_first(config) -> None:
    async def work(item: int) -> None:
        try:
            await asyncio.sleep(item)
        finally:
            raise ValueError(item)

    async def main() -> None:
        async with forebay.open(config(embedding=4)) as fb:
            with pytest.raises(ValueError, match="1"):
                await fb.map_concurrent(work, [3, 2, 1], model="embed")
            assert inflight(fb) == 0

    on_virtual_time(main())


@anyio_test
async def test_a_cancelled_error_that_fn_raises_by_itself_is_an_error(config) -> None:
    async def work(_: int) -> None:
        raise asyncio.CancelledError

    async with forebay.open(config()) as fb:
        with pytest.raises(asyncio.CancelledError):
            await fb.map_concurrent(work, [1, 2], model="embed")
        assert inflight(fb) == 0


@anyio_test
async def test_items_are_taken_only_as_slots_come_free(config) -> None:
    taken = done = tasks = 0

    def items():
        nonlocal taken
        for item in range(50_000):
            taken += 1
            yield item

    async def nothing(item: int) -> int:
        nonlocal done, tasks
        assert taken - done <= 3  # two slots, and the next item
        if item % 1000 == 0:
            tasks = max(tasks, len(asyncio.all_tasks()))
        done += 1
        return item

    async with forebay.open(config(embedding=2)) as fb:
        others = len(asyncio.all_tasks())
        results = await fb.map_concurrent(nothing, items(), model="embed")
    assert results == list(range(50_000))
    assert tasks <= others + 2


@anyio_test
async def test_one_map_keeps_one_request_in_the_queue(config) -> None:
    async with forebay.open(config(embedding=1)) as fb:
        held = fb.try_slot("embed")
        mapping = asyncio.create_task(fb.map_concurrent(echo, range(5000), model="embed"))
        await eventually(lambda: waiting(fb) == 1)
        for _ in range(20):
            await asyncio.sleep(0)
            assert waiting(fb) == 1
        held.give_back()
        assert await mapping == list(range(5000))


def test_texts_let_the_limit_grow_and_the_width_follows_it(config) -> None:
    async def main() -> int:
        most = 0

        async def embed(_: str) -> None:
            nonlocal most
            most = max(most, inflight(fb))
            await asyncio.sleep(0.1)

        path = config(embedding=8, limit="gradient_aimd")
        async with forebay.open(path) as fb:
            await fb.map_concurrent(embed, ["a text like all the others"] * 500, model="embed")
        return most

    assert on_virtual_time(main()) == 8


def test_without_sizes_the_limit_stays_at_its_floor(config) -> None:
    async def main() -> int:
        path = config(embedding=8, limit="gradient_aimd")
        async with forebay.open(path) as fb:
            await fb.map_concurrent(
                lambda _: asyncio.sleep(0.1), ["text"] * 500, model="embed", size=lambda _: None
            )
            return fb.status()["endpoints"]["embed@127.0.0.2:9"]["limit"]

    assert on_virtual_time(main()) == 1


def test_while_no_endpoint_can_serve_it_waits_and_then_goes_on(config) -> None:
    async def main() -> None:
        async with forebay.open(config()) as fb:
            for _ in range(3):
                with pytest.raises(ConnectionError):
                    async with fb.slot("embed"):
                        raise ConnectionError
            with pytest.raises(forebay.Rejected):
                fb.try_slot("embed")
            assert await fb.map_concurrent(echo, range(5), model="embed") == list(range(5))

    on_virtual_time(main())


def test_a_full_queue_is_waited_for_too(config) -> None:
    async def main() -> None:
        async with forebay.open(config(embedding=1, queue={"max_requests": 1})) as fb:

            async def other() -> None:
                async with fb.slot("embed"):
                    await asyncio.sleep(5)

            others = [asyncio.create_task(other()) for _ in range(2)]
            await asyncio.sleep(0)
            assert (inflight(fb), waiting(fb)) == (1, 1)
            assert await fb.map_concurrent(echo, range(3), model="embed") == [0, 1, 2]
            await asyncio.gather(*others)

    on_virtual_time(main())


def test_a_session_that_closes_ends_a_map(config) -> None:
    async def main() -> None:
        async with forebay.open(config()) as fb:
            mapping = asyncio.create_task(fb.map_concurrent(asyncio.sleep, [1] * 9, model="embed"))
            await asyncio.sleep(0.5)
        with pytest.raises(forebay.Rejected, match="shutting down"):
            await mapping

    on_virtual_time(main())


def test_an_item_that_waits_too_long_fails_alone_where_errors_are_collected(config) -> None:
    async def main() -> None:
        async with forebay.open(config(embedding=1)) as fb:
            held = fb.try_slot("embed")
            asyncio.get_running_loop().call_later(15, held.give_back)
            results = await fb.map_concurrent(
                echo, range(3), model="embed", timeout=10, on_error="collect"
            )
            assert isinstance(results[0], forebay.Rejected)
            assert results[0].reason == "deadline"
            assert results[1:] == [1, 2]

    on_virtual_time(main())


def test_an_item_that_waits_too_long_ends_everything_otherwise(config) -> None:
    async def main() -> None:
        async with forebay.open(config(embedding=1)) as fb:
            held = fb.try_slot("embed")
            with pytest.raises(forebay.Rejected, match="deadline"):
                await fb.map_concurrent(echo, range(3), model="embed", timeout=10)
            held.give_back()
            assert inflight(fb) == waiting(fb) == 0

    on_virtual_time(main())


@anyio_test
async def test_what_is_wrong_with_the_call_is_told_before_any_item_is_taken(config) -> None:
    async with forebay.open(config()) as fb:
        items = iter(range(3))
        with pytest.raises(forebay.Rejected, match="known: chat, embed"):
            await fb.map_concurrent(echo, items, model="gpt-4", on_error="collect")
        with pytest.raises(ValueError, match="on_error"):
            await fb.map_concurrent(echo, items, model="embed", on_error="ignore")
        with pytest.raises(ValueError, match="timeout"):
            await fb.map_concurrent(echo, items, model="embed", timeout=0)
        assert list(items) == [0, 1, 2]


@anyio_test
async def test_fn_finds_its_lease(config) -> None:
    async with forebay.open(config()) as fb:

        async def where(_: int) -> str:
            return fb.current_lease().endpoint.base_url

        assert set(await fb.map_concurrent(where, range(9), model="embed")) == {
            "http://127.0.0.2:9/v1"
        }


@anyio_test
async def test_a_map_that_is_lowered_lets_others_of_its_model_go_first(config) -> None:
    async with forebay.open(config(chat=1)) as fb:
        order: list[str] = []

        async def work(item: int) -> None:
            order.append("bulk")
            if item == 0:
                asked.set()
            await eventually(lambda: waiting(fb) == 2 or "chat" in order)

        async def chat() -> None:
            await asked.wait()
            async with fb.slot("chat"):
                order.append("chat")

        asked = asyncio.Event()
        await asyncio.gather(
            fb.map_concurrent(work, range(5), model="chat", priority="best-effort"), chat()
        )
        assert order == ["bulk", "chat", *["bulk"] * 4]
