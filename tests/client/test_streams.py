"""Results that are read while a fan-out goes on: in order or as they come, in bounded memory."""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import forebay
from support.sessions import inflight, waiting
from support.virtual_loop import on_virtual_time
from support.waiting import eventually

_PATIENCE_S = 20
many = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


async def nap(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@many
@given(durations=st.lists(st.integers(0, 9), max_size=30), buffer=st.integers(1, 5))
def test_a_stream_gives_every_result_in_order_whatever_each_takes(config, durations, buffer):
    async def main() -> None:
        async with forebay.open(config(embedding=3)) as fb:
            stream = fb.stream(nap, durations, model="embed", buffer=buffer)
            assert [result async for result in stream] == durations
            assert inflight(fb) == waiting(fb) == 0

    on_virtual_time(main())


def test_as_completed_gives_what_is_ready_first_with_its_item(config) -> None:
    async def main() -> list:
        async with forebay.open(config(embedding=3)) as fb:
            return [pair async for pair in fb.as_completed(nap, [3, 1, 2, 5], model="embed")]

    assert on_virtual_time(main()) == [(1, 1), (2, 2), (3, 3), (5, 5)]


@many
@given(slow_reader=st.booleans(), ordered=st.booleans(), buffer=st.integers(2, 9))
def test_no_more_items_are_taken_than_the_buffer_holds(config, slow_reader, ordered, buffer):
    async def main() -> None:
        taken = read = 0

        def items():
            nonlocal taken
            for item in range(200):
                taken += 1
                assert taken - read <= buffer + 1  # one may be in the reader's hands
                yield item % 7

        async with forebay.open(config(embedding=2)) as fb:
            method = fb.stream if ordered else fb.as_completed
            async for _ in method(nap, items(), model="embed", buffer=buffer):
                read += 1
                await asyncio.sleep(5 if slow_reader else 0)
            assert read == 200

    on_virtual_time(main())


def test_results_come_while_items_are_still_to_come(config) -> None:
    async def main() -> None:
        async with forebay.open(config(embedding=2)) as fb:
            seen = []
            async for result in fb.stream(nap, (0 for _ in count()), model="embed"):
                seen.append(result)
                if len(seen) == 100:
                    break
            await eventually(lambda: inflight(fb) == waiting(fb) == 0)

    on_virtual_time(main())


@pytest.mark.parametrize("leave", ["break", "raise", "cancel", "abandon"])
def test_a_reader_that_leaves_leaves_nothing_behind(config, leave) -> None:
    async def read(fb) -> None:
        async for _ in fb.stream(nap, (1 for _ in count()), model="embed"):
            if leave == "break":
                break
            if leave == "raise":
                raise ValueError(leave)
            if leave == "cancel":
                asyncio.current_task().cancel()

    async def main() -> None:
        async with forebay.open(config(embedding=2)) as fb:
            others = len(asyncio.all_tasks())
            if leave == "abandon":
                stream = fb.stream(nap, (1 for _ in count()), model="embed")
                await anext(stream)
                del stream
            else:
                await asyncio.gather(asyncio.create_task(read(fb)), return_exceptions=True)
            await eventually(lambda: len(asyncio.all_tasks()) == others)
            assert inflight(fb) == waiting(fb) == 0

    on_virtual_time(main())


def test_a_failure_ends_a_stream_after_what_was_ready(config) -> None:
    async def work(item: int) -> int:
        await asyncio.sleep(item)
        if item == 3:
            raise ValueError(item)
        return item

    async def main() -> None:
        seen = []
        async with forebay.open(config(embedding=4)) as fb:

            async def read() -> None:
                async for result in fb.stream(work, [1, 2, 3, 4, 5], model="embed"):
                    seen.append(result)  # noqa: PERF401 - it is looked at after an error

            with pytest.raises(ValueError, match="3"):
                await read()
            assert seen == [1, 2]
            assert inflight(fb) == waiting(fb) == 0

    on_virtual_time(main())


def test_collected_failures_are_results_of_a_stream(config) -> None:
    async def work(item: int) -> int:
        if item % 2:
            raise ValueError(item)
        return item

    async def main() -> list:
        async with forebay.open(config()) as fb:
            stream = fb.as_completed(work, range(4), model="embed", on_error="collect")
            return sorted([(item, type(result)) async for item, result in stream])

    assert on_virtual_time(main()) == [(0, int), (1, ValueError), (2, int), (3, ValueError)]


def test_what_is_wrong_with_a_stream_is_told_when_it_is_made(config) -> None:
    async def main() -> None:
        async with forebay.open(config()) as fb:
            with pytest.raises(forebay.Rejected, match="known"):
                fb.stream(nap, [1], model="gpt-4")
            with pytest.raises(ValueError, match="buffer"):
                fb.as_completed(nap, [1], model="embed", buffer=0)

    on_virtual_time(main())


# -- in threads ------------------------------------------------------------------------------------


def sleepy(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_a_thread_reads_a_stream_in_order(config) -> None:
    with forebay.open_sync(config(embedding=4)) as fb:
        durations = [0.03, 0.0, 0.02, 0.0, 0.01] * 6
        assert list(fb.stream_sync(sleepy, durations, model="embed")) == durations
        pairs = list(fb.as_completed_sync(sleepy, durations, model="embed", buffer=3))
        assert sorted(pairs) == sorted(zip(durations, durations, strict=True))
        assert inflight(fb) == 0


def test_a_thread_that_stops_reading_leaves_nothing_behind(config) -> None:
    with forebay.open_sync(config(embedding=2)) as fb:

        def workers() -> list[str]:
            names = [thread.name for thread in threading.enumerate()]
            return [name for name in names if name.startswith(("forebay fan-out", "forebay_"))]

        for item in fb.stream_sync(sleepy, (0.001 for _ in count()), model="embed", buffer=4):
            assert item == 0.001
            assert workers()
            break
        by = time.monotonic() + _PATIENCE_S
        while workers() or inflight(fb):
            assert time.monotonic() < by
            time.sleep(0.01)


def test_a_reader_in_a_thread_hears_of_failures(config) -> None:
    def work(item: int) -> float:
        return 1 / item

    with forebay.open_sync(config()) as fb:
        with pytest.raises(ZeroDivisionError):
            list(fb.stream_sync(work, [2, 1, 0], model="embed"))
        found = dict(fb.as_completed_sync(work, [2, 0], model="embed", on_error="collect"))
        assert found[2] == 0.5
        assert isinstance(found[0], ZeroDivisionError)
