"""A session stays in its process, ends with its loop, and no endpoint has two of them."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import forebay
from support.configs import emulated
from support.sessions import inflight


async def work(path, items: int = 50) -> list[int]:
    async def echo(item: int) -> int:
        await asyncio.sleep(0)
        return item

    async with forebay.open(path) as fb:
        return await fb.map_concurrent(echo, range(items), model="embed")


def test_one_asyncio_run_after_another_works(config) -> None:
    path = config()
    for _ in range(2):
        assert asyncio.run(work(path)) == list(range(50))


def test_a_loop_that_was_closed_with_slots_held_does_not_keep_them(config) -> None:
    path = config()

    async def leave_open() -> tuple:
        opened = forebay.open(path)
        fb = await opened.__aenter__()
        return opened, fb, [fb.try_slot("embed"), fb.try_slot("embed")]

    loop = asyncio.new_event_loop()
    opened, fb, leases = loop.run_until_complete(leave_open())
    readers = asyncio.all_tasks(loop)
    for reader in readers:
        reader.cancel()
    loop.run_until_complete(asyncio.gather(*readers, return_exceptions=True))
    loop.close()
    assert asyncio.run(work(path)) == list(range(50))
    # What was left behind does no harm when it goes, either.
    leases.pop().give_back()
    with pytest.raises(forebay.UsageError), leases.pop():
        pass
    del fb
    gc.collect()
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(opened.__aexit__(None, None, None))


@pytest.mark.anyio
async def test_a_second_session_over_the_same_endpoint_is_refused(config) -> None:
    path = config()
    async with forebay.open(path) as fb:
        with pytest.raises(forebay.UsageError, match="double its budget"):
            async with forebay.open(path):
                pass
        with pytest.raises(forebay.UsageError, match="double its budget"):
            await asyncio.to_thread(lambda: asyncio.run(work(path)))
        assert inflight(fb) == 0
        async with fb.slot("embed"):
            pass
    assert await work(path) == list(range(50))


@pytest.mark.anyio
async def test_two_sessions_over_different_endpoints_are_two(host, write, config) -> None:
    async with forebay.open(write(emulated(host))) as one, forebay.open(config()) as other:
        assert set(one.status()["endpoints"]).isdisjoint(other.status()["endpoints"])


def test_threads_that_open_at_the_same_time_never_both_succeed(config) -> None:
    path = config()
    start, tried = threading.Barrier(4, timeout=10), threading.Barrier(4, timeout=10)

    async def use() -> str:
        try:
            async with forebay.open(path):
                tried.wait()  # whoever opened it keeps it until all have tried
                return "open"
        except forebay.UsageError:
            tried.wait()
            return "refused"

    def run() -> str:
        start.wait()
        return asyncio.run(use())

    with ThreadPoolExecutor(4) as pool:
        results = [future.result() for future in [pool.submit(run) for _ in range(4)]]
    assert sorted(results) == ["open", "refused", "refused", "refused"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_starts_afresh_and_leaves_its_parent_alone(config) -> None:
    path = config()

    async def parent() -> None:
        async with forebay.open(path) as fb:
            lease = fb.try_slot("embed")
            pid = os.fork()
            if pid == 0:
                os._exit(_in_child(fb, lease, path))
            _, status = await asyncio.to_thread(os.waitpid, pid, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            assert inflight(fb) == 1
            lease.give_back()
            async with fb.slot("embed"):
                assert inflight(fb) == 1

    asyncio.run(parent())


def _in_child(fb, lease, path) -> int:
    try:
        with pytest.raises(forebay.UsageError, match="forked"):
            fb.try_slot("embed")
        lease.give_back()
        del lease
        asyncio.events._set_running_loop(None)  # the parent's, which does not run here
        assert asyncio.run(work(path)) == list(range(50))
    except BaseException:  # noqa: BLE001 - a child of a test must never go on as one
        return 1
    return 0
