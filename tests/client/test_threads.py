"""The library without an event loop, and in several: one session, one budget."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

import forebay
from forebay.client.calls import InThreads
from support.sessions import inflight, waiting

_PATIENCE_S = 20


def until(condition) -> None:
    by = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < by
        time.sleep(0.001)


def test_a_thread_holds_a_slot_for_its_block(config) -> None:
    with forebay.open_sync(config(embedding=1)) as fb:
        with fb.slot("embed") as lease:
            assert lease.endpoint.base_url == "http://127.0.0.2:9/v1"
            assert fb.current_lease() is lease
            assert inflight(fb) == 1
            assert fb.try_slot("embed") is None
        assert inflight(fb) == 0


def test_a_thread_waits_until_a_slot_is_free(config) -> None:
    with forebay.open_sync(config(embedding=1)) as fb, ThreadPoolExecutor(1) as pool:

        def use() -> float:
            with fb.slot("embed") as lease:
                return lease.queued_s

        with fb.slot("embed"):
            used = pool.submit(use)
            until(lambda: waiting(fb) == 1)
        assert used.result(_PATIENCE_S) > 0


def test_waiting_in_a_thread_ends_at_the_timeout(config) -> None:
    with forebay.open_sync(config(embedding=1)) as fb:
        held = fb.try_slot("embed")
        with pytest.raises(forebay.Rejected, match="deadline"), fb.slot("embed", timeout=0.02):
            pass
        held.give_back()
        assert inflight(fb) == waiting(fb) == 0


def test_a_thread_that_asks_for_what_it_holds_is_told(config) -> None:
    with forebay.open_sync(config(embedding=1)) as fb, fb.slot("embed"):
        with pytest.raises(forebay.UsageError, match="leave the first block"), fb.slot("embed"):
            pass
        assert inflight(fb) == 1


def test_loops_and_threads_share_one_budget(config) -> None:
    with forebay.open_sync(config(embedding=3)) as fb:
        most, lock = 0, threading.Lock()

        def note() -> None:
            nonlocal most
            with lock:
                most = max(most, inflight(fb))

        async def embed(item: int) -> int:
            note()
            await asyncio.sleep(0.001)
            return item

        def embed_sync(item: int) -> int:
            note()
            time.sleep(0.001)
            return item

        def in_a_loop(factory) -> list[int]:
            with asyncio.Runner(loop_factory=factory) as runner:
                return runner.run(fb.map_concurrent(embed, range(60), model="embed"))

        with ThreadPoolExecutor(4) as pool:
            jobs = [
                pool.submit(in_a_loop, asyncio.new_event_loop),
                pool.submit(in_a_loop, uvloop.new_event_loop),
                pool.submit(fb.map_concurrent_sync, embed_sync, range(60), model="embed"),
                pool.submit(fb.map_concurrent_sync, embed_sync, range(60), model="embed"),
            ]
            results = [job.result(4 * _PATIENCE_S) for job in jobs]
        assert results == [list(range(60))] * 4
        assert most == 3
        assert inflight(fb) == waiting(fb) == 0


def test_a_session_of_a_running_loop_serves_threads(config) -> None:
    async def main() -> list[str]:
        async with forebay.open(config(embedding=2)) as fb:

            def shout(text: str) -> str:
                assert fb.current_lease().model == "embed"
                return text.upper()

            return await asyncio.to_thread(
                fb.map_concurrent_sync, shout, ["a", "b", "c"], model="embed"
            )

    assert asyncio.run(main()) == ["A", "B", "C"]


def test_what_would_block_a_running_loop_is_refused_with_the_way_out(config) -> None:
    with forebay.open_sync(config()) as fb:

        async def main() -> None:
            with pytest.raises(forebay.UsageError, match="async with"), fb.slot("embed"):
                pass
            with pytest.raises(forebay.UsageError, match=r"await fb\.map_concurrent"):
                fb.map_concurrent_sync(str, [1], model="embed")
            with pytest.raises(forebay.UsageError, match="async for"):
                fb.stream_sync(str, [1], model="embed")
            lease = fb.try_slot("embed")  # never waits, so it is fine anywhere
            with lease:
                assert inflight(fb) == 1

        asyncio.run(main())
        assert inflight(fb) == 0


def test_a_coroutine_function_is_no_function_for_threads(config) -> None:
    async def embed(_: int) -> None: ...

    with (
        forebay.open_sync(config()) as fb,
        pytest.raises(forebay.UsageError, match="edition without `_sync`"),
    ):
        fb.map_concurrent_sync(embed, [1], model="embed")


def test_a_lease_may_be_used_and_given_back_in_another_thread(config) -> None:
    with forebay.open_sync(config()) as fb, ThreadPoolExecutor(1) as pool:
        lease = fb.try_slot("embed")
        pool.submit(lease.first_token, 10).result(_PATIENCE_S)
        pool.submit(lease.give_back).result(_PATIENCE_S)
        assert inflight(fb) == 0
        entered = fb.try_slot("embed").__enter__()
        pool.submit(entered.__exit__, None, None, None).result(_PATIENCE_S)
        assert inflight(fb) == 0


def test_a_call_in_a_thread_keeps_its_slot_however_often_it_is_cancelled(config) -> None:
    started, go_on = threading.Event(), threading.Event()

    def work(_: int) -> None:
        started.set()
        go_on.wait(_PATIENCE_S)

    async def main(fb: forebay.Session) -> None:
        with InThreads(work) as call:
            task = asyncio.create_task(call(fb.try_slot("embed"), None, 1))
            await asyncio.to_thread(started.wait, _PATIENCE_S)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0.01)
                assert not task.done()
                assert inflight(fb) == 1
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert inflight(fb) == 0

    with forebay.open_sync(config()) as fb:
        asyncio.run(main(fb))


def test_a_fan_out_that_would_wait_for_its_own_caller_is_refused(config) -> None:
    with forebay.open_sync(config(embedding=1)) as fb, fb.slot("embed"):
        for fan_out in (fb.map_concurrent_sync, fb.stream_sync, fb.as_completed_sync):
            with pytest.raises(forebay.UsageError, match="leave the first block"):
                fan_out(str, [1], model="embed")


def test_one_request_for_a_slot_is_good_for_one_block(config) -> None:
    async def main() -> None:
        async with forebay.open(config(embedding=1)) as fb:
            asked = fb.slot("embed")
            held = fb.try_slot("embed")
            first = asyncio.create_task(asked.__aenter__())
            await asyncio.sleep(0)
            with pytest.raises(forebay.UsageError, match="used before"):
                async with asked:
                    pass
            held.give_back()
            await first
            assert inflight(fb) == 1
            await asked.__aexit__(None, None, None)
            assert inflight(fb) == 0

    asyncio.run(main())


def test_a_loop_that_is_closed_over_a_block_does_not_keep_its_slot(config) -> None:
    with forebay.open_sync(config(embedding=2)) as fb:

        async def hold() -> None:
            async with fb.slot("embed"):
                await asyncio.Event().wait()

        async def hold_and_ask() -> None:
            async with fb.slot("embed"), fb.slot("embed"):
                pass

        loop = asyncio.new_event_loop()
        tasks = [loop.create_task(hold()), loop.create_task(hold_and_ask())]
        for task in tasks:
            task._log_destroy_pending = False
        loop.call_later(0.01, loop.stop)
        loop.run_forever()
        loop.close()
        assert (inflight(fb), waiting(fb)) == (2, 1)
        tasks.clear()
        del task
        gc.collect()
        until(lambda: inflight(fb) == waiting(fb) == 0)


def test_threads_ask_while_the_configuration_changes_under_them(write) -> None:
    def plan(models: int) -> dict:
        endpoint = {"gpu_group": "gpu", "engine": "unknown"}
        return {
            "embedding_models": [
                {"id": f"m{n}", "endpoints": [endpoint | {"base_url": f"http://127.0.0.1:9/{n}"}]}
                for n in range(models)
            ]
        }

    path = write(plan(20))
    with forebay.open_sync(path) as fb:
        stop, errors = threading.Event(), []

        def ask() -> None:
            while not stop.is_set():
                for n in range(20):
                    try:
                        with fb.slot(f"m{n}", timeout=5):
                            pass
                    except forebay.Rejected:
                        pass
                    except Exception as error:  # noqa: BLE001 - seen in the test's own thread
                        errors.append(error)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for models in (1, 20, 1, 20):
            write(plan(models))
            fb._home.loop.call_soon_threadsafe(fb._deployment.reload.look)
            until(lambda models=models: len(fb.status()["models"]) == models)
        stop.set()
        for thread in threads:
            thread.join(_PATIENCE_S)
        assert errors == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_refuses_and_ends_whatever_its_parent_s_threads_were_doing(config) -> None:
    script = """
import os, sys, threading, forebay
fb = forebay.open_sync(sys.argv[1])
going = True
def work():
    while going:
        with fb.slot('embed'):
            pass
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
lease = fb.try_slot('chat')
for _ in range(30):  # now and then in the middle of a decision
    pid = os.fork()
    if pid == 0:
        for use in (fb.status, fb.current_lease, lambda: fb.try_slot('embed'),
                    fb.slot('embed').__enter__, lease.__enter__):
            try:
                use()
            except forebay.UsageError as error:
                assert 'forked' in str(error)
            else:
                os._exit(1)
        lease.give_back()
        del lease
        fb.close()
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
going = False
for thread in threads:
    thread.join()
assert fb.status()['groups']['gpu']['inflight'] == 1
fb.close()
print('fine')
"""
    done = subprocess.run(
        [sys.executable, "-c", script, config()], capture_output=True, timeout=60, check=False
    )
    assert done.stdout == b"fine\n", done.stderr.decode()


# -- closing ---------------------------------------------------------------------------------------


def test_a_closed_session_says_so(config) -> None:
    fb = forebay.open_sync(config())
    fb.close()
    fb.close()
    for use in (lambda: fb.try_slot("embed"), fb.status, fb.slot("embed").__enter__, fb.__enter__):
        with pytest.raises(forebay.UsageError, match="closed"):
            use()


def test_closing_refuses_threads_that_wait(config) -> None:
    fb = forebay.open_sync(config(embedding=1))
    held = fb.try_slot("embed")
    with ThreadPoolExecutor(1) as pool:
        asked = fb.slot("embed")
        used = pool.submit(asked.__enter__)
        until(lambda: waiting(fb) == 1)
        fb.close()
        with pytest.raises(forebay.Rejected, match="shutting down"):
            used.result(_PATIENCE_S)
    held.give_back()


def test_it_leaves_no_thread(config) -> None:
    before = threading.active_count()
    with forebay.open_sync(config()) as fb:
        fb.map_concurrent_sync(str, range(5), model="embed")
    assert threading.active_count() == before


def test_what_cannot_be_opened_raises_where_it_was_called(tmp_path, config) -> None:
    with pytest.raises(forebay.ConfigError, match=r"missing\.json"):
        forebay.open_sync(tmp_path / "missing.json")
    path = config()
    with (
        forebay.open_sync(path),
        pytest.raises(forebay.UsageError, match="double its budget"),
    ):
        forebay.open_sync(path)


def test_a_session_of_a_loop_is_closed_by_its_block_only(config) -> None:
    async def main() -> None:
        async with forebay.open(config()) as fb:
            with pytest.raises(forebay.UsageError, match="async with"):
                fb.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "fb.try_slot('embed')",
        "fb.slot('embed').__enter__()",
        "raise SystemExit(0)",
        # A thread that waits for a slot that will never come keeps its program for its time-out.
        "held = fb.try_slot('embed'), fb.try_slot('embed'); threading.Thread(target=wait).start()",
        "it = fb.stream_sync(str, iter(int, 1), model='embed'); next(it)",
    ],
)
def test_a_program_ends_whatever_it_left_open(config, ending) -> None:
    script = f"""
import sys, threading, forebay
def wait():
    try:
        with fb.slot('embed', timeout=0.2):
            pass
    except forebay.Rejected:
        pass
fb = forebay.open_sync(sys.argv[1])
{ending}
"""
    done = subprocess.run(
        [sys.executable, "-c", script, config()], capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr
