"""What a fan-out does about errors, and how it tells how far it is."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import forebay
from support.sessions import inflight, waiting
from support.virtual_loop import on_virtual_time


async def nap(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


# -- retries ---------------------------------------------------------------------------------------


def test_an_item_is_tried_again_after_a_pause_that_doubles_and_without_its_slot(config) -> None:
    async def main() -> None:
        tried: list[float] = []
        async with forebay.open(config(embedding=1)) as fb:
            now = asyncio.get_running_loop().time

            async def work(item: str) -> str:
                assert inflight(fb) == 1
                if item == "other":
                    return item
                tried.append(now())
                if len(tried) < 4:
                    raise ValueError(item)
                return item

            results = await fb.map_concurrent(
                work,
                ["flaky", "other"],
                model="embed",
                retry=forebay.Retry(attempts=4, on=ValueError, wait_s=2.0),
            )
            assert results == ["flaky", "other"]
            assert [round(at - tried[0]) for at in tried] == [0, 2, 6, 14]

    on_virtual_time(main())


@pytest.mark.parametrize("on_error", ["raise", "collect"])
def test_an_item_that_fails_each_time_has_its_last_error(config, on_error) -> None:
    calls = Counter()

    async def work(item: int) -> int:
        calls[item] += 1
        if item == 1:
            raise ValueError(f"try {calls[item]}")
        return item

    async def main() -> None:
        retry = forebay.Retry(attempts=3, wait_s=0.1)
        async with forebay.open(config()) as fb:
            mapping = fb.map_concurrent(
                work, [0, 1, 2], model="embed", retry=retry, on_error=on_error
            )
            if on_error == "raise":
                with pytest.raises(ValueError, match="try 3"):
                    await mapping
            else:
                results = await mapping
                assert (results[0], str(results[1]), results[2]) == (0, "try 3", 2)
            assert inflight(fb) == waiting(fb) == 0

    on_virtual_time(main())
    assert calls[1] == 3


def test_other_errors_are_not_tried_again(config) -> None:
    calls = Counter()

    async def work(item: int) -> None:
        calls[item] += 1
        raise KeyError(item)

    async def main() -> None:
        async with forebay.open(config()) as fb:
            with pytest.raises(KeyError):
                await fb.map_concurrent(
                    work, [0], model="embed", retry=forebay.Retry(on=(ValueError, OSError))
                )

    on_virtual_time(main())
    assert calls[0] == 1


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"wait_s": -1}, {"wait_s": float("inf")}])
def test_a_policy_that_makes_no_sense_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        forebay.Retry(**wrong)


# -- items that fail -------------------------------------------------------------------------------


def two_then_an_error():
    yield 3
    yield 1
    raise OSError("the disk is gone")


def test_items_that_raise_midway_end_it_with_their_error_as_the_cause(config) -> None:
    async def main() -> None:
        async with forebay.open(config()) as fb:
            with pytest.raises(forebay.ItemsError, match="after 2 items") as caught:
                await fb.map_concurrent(nap, two_then_an_error(), model="embed")
            assert isinstance(caught.value.__cause__, OSError)
            assert inflight(fb) == waiting(fb) == 0

    on_virtual_time(main())


def test_where_errors_are_collected_nothing_that_was_done_is_lost(config) -> None:
    async def main() -> None:
        async with forebay.open(config()) as fb:
            with pytest.raises(forebay.ItemsError) as caught:
                await fb.map_concurrent(nap, two_then_an_error(), model="embed", on_error="collect")
            assert caught.value.results == [3, 1]

    on_virtual_time(main())


# -- progress --------------------------------------------------------------------------------------


def test_progress_is_told_after_each_item(config) -> None:
    async def work(item: int) -> int:
        if item == 2:
            raise ValueError(item)
        return item

    async def main() -> list[forebay.Progress]:
        told: list[forebay.Progress] = []
        async with forebay.open(config(embedding=1)) as fb:
            await fb.map_concurrent(
                work, [1, 2, 3], model="embed", on_error="collect", progress=told.append
            )
            await fb.map_concurrent(work, iter([1]), model="embed", progress=told.append)
        return told

    assert on_virtual_time(main()) == [
        forebay.Progress(1, 0, 3),
        forebay.Progress(2, 1, 3),
        forebay.Progress(3, 1, 3),
        forebay.Progress(1, 0, None),
    ]


def test_a_progress_function_that_raises_ends_it_by_name(config) -> None:
    def tell(_: forebay.Progress) -> None:
        raise KeyError("my bar")

    async def main() -> None:
        async with forebay.open(config()) as fb:
            with pytest.raises(forebay.CallbackError, match="my bar") as caught:
                await fb.map_concurrent(nap, [1] * 9, model="embed", progress=tell)
            assert isinstance(caught.value.__cause__, KeyError)
            assert inflight(fb) == waiting(fb) == 0

    on_virtual_time(main())


@pytest.mark.parametrize("library", ["rich", "tqdm"])
def test_a_bar_is_drawn_when_asked_for(config, library, capfd) -> None:
    with forebay.open_sync(config()) as fb:
        assert fb.map_concurrent_sync(str, range(30), model="embed", progress=library) == [
            str(n) for n in range(30)
        ]
    drawn = "".join(capfd.readouterr())
    assert "embed" in drawn
    assert "100%" in drawn


def test_a_bar_without_its_library_says_what_to_install(config, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tqdm", None)
    with (
        forebay.open_sync(config()) as fb,
        pytest.raises(forebay.UsageError, match="pip install tqdm"),
    ):
        fb.map_concurrent_sync(str, range(3), model="embed", progress="tqdm")


def test_progress_is_one_of_a_few_things(config) -> None:
    with (
        forebay.open_sync(config()) as fb,
        pytest.raises(ValueError, match="'rich', 'tqdm' or a function"),
    ):
        fb.map_concurrent_sync(str, range(3), model="embed", progress="bar")


# -- what is wrong with a call ---------------------------------------------------------------------


def test_arguments_that_do_not_exist_are_told_with_those_that_do(config) -> None:
    with forebay.open_sync(config()) as fb:
        for wrong in ({"retries": 3}, {"time_out": 5}, {"buffer": 9}):
            with pytest.raises(TypeError, match=rf"'{next(iter(wrong))}'; besides.*timeout.*retry"):
                fb.map_concurrent_sync(str, [1], model="embed", **wrong)


@pytest.mark.parametrize(
    "wrong", [{"retry": 3}, {"timeout": "5"}, {"timeout": -1}, {"priority": "high"}]
)
def test_arguments_of_another_type_are_told_before_any_item(config, wrong) -> None:
    items = iter([1])
    with (
        forebay.open_sync(config()) as fb,
        pytest.raises((TypeError, ValueError), match=next(iter(wrong))),
    ):
        fb.map_concurrent_sync(str, items, model="embed", **wrong)
    assert list(items) == [1]


@pytest.mark.parametrize("weight", ["2", 1.5, float("nan"), 0])
def test_a_weight_is_a_number_of_slots(config, weight) -> None:
    with forebay.open_sync(config()) as fb, pytest.raises(ValueError, match="weight"):
        fb.try_slot("embed", weight=weight)


@pytest.mark.parametrize("wrong", [{"on": "x"}, {"on": (ValueError, 3)}, {"attempts": 2.5}])
def test_a_policy_of_other_types_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        forebay.Retry(**wrong)


def test_a_function_that_blocks_is_told_apart_from_one_for_tasks(config) -> None:
    async def main() -> None:
        async with forebay.open(config()) as fb:
            with pytest.raises(forebay.UsageError, match="edition with `_sync`"):
                await fb.map_concurrent(str, [1], model="embed")

    on_virtual_time(main())


# -- what functions raise that no future can have --------------------------------------------------


@pytest.mark.parametrize("on_error", ["raise", "collect"])
def test_a_function_that_raises_stop_iteration_has_failed(config, on_error) -> None:
    def empty(_: int) -> int:
        return next(iter(()))

    with forebay.open_sync(config()) as fb:

        def run(kind: str) -> list:
            if kind == "map":
                return fb.map_concurrent_sync(empty, [1, 2], model="embed", on_error=on_error)
            return list(fb.stream_sync(empty, [1, 2], model="embed", on_error=on_error))

        for kind in ("map", "stream"):
            if on_error == "raise":
                with pytest.raises(RuntimeError, match="StopIteration"):
                    run(kind)
            else:
                assert [type(each) for each in run(kind)] == [RuntimeError] * 2
        assert inflight(fb) == 0


def test_items_that_raise_a_cancelled_error_end_a_stream_too(config) -> None:
    async def items():
        yield 1
        raise asyncio.CancelledError

    async def main() -> None:
        async with forebay.open(config()) as fb:
            with pytest.raises(asyncio.CancelledError):
                async for _ in fb.stream(nap, items(), model="embed"):
                    pass
            assert inflight(fb) == waiting(fb) == 0

    on_virtual_time(main())


def test_an_error_of_a_callback_counts_more_than_the_end_of_the_items(config) -> None:
    def tell(progress: forebay.Progress) -> None:
        if progress.done == 2:
            raise KeyError("my bar")

    async def main() -> None:
        async with forebay.open(config()) as fb:
            with pytest.raises(forebay.CallbackError):
                await fb.map_concurrent(
                    nap, two_then_an_error(), model="embed", on_error="collect", progress=tell
                )

    on_virtual_time(main())


def test_without_collecting_the_items_error_has_no_results(config) -> None:
    async def main() -> None:
        async with forebay.open(config()) as fb:
            with pytest.raises(forebay.ItemsError) as caught:
                await fb.map_concurrent(nap, two_then_an_error(), model="embed")
            assert caught.value.results is None

    on_virtual_time(main())
