"""One limiter for threads and several event loops at once: in real time, with real threads."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import uvloop

from forebay.core.model import Ending, Outcome
from forebay.drivers.limiter import Limiter
from forebay.errors import Rejected
from support.deployments import BEST_EFFORT, INTERACTIVE, admission, endpoint

OK = Ending(Outcome.OK)
_PATIENCE_S = 20
_CEILING = 3


@contextmanager
def desk_in_a_thread(*endpoints, factory=asyncio.new_event_loop, **more):
    """A limiter whose loop runs in another thread."""
    made: list[Limiter] = []
    ready = threading.Event()
    loop = factory()

    def run() -> None:
        asyncio.set_event_loop(loop)
        core = admission(*(endpoints or (endpoint("chat", ceiling=1),)), **more)
        made.append(Limiter(core, loop, time.monotonic))
        loop.call_soon(ready.set)
        loop.run_forever()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(_PATIENCE_S)
    try:
        yield made[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_PATIENCE_S)
        loop.close()


def ticket(desk: Limiter, timeout_s: float = _PATIENCE_S, service_class=INTERACTIVE):
    return desk.ticket("chat", service_class, timeout_s=timeout_s)


def waits(desk: Limiter, count: int = 1) -> None:
    """Wait until so many wait."""
    until = time.monotonic() + _PATIENCE_S
    while len(desk._waiters) != count:
        assert time.monotonic() < until
        time.sleep(0.001)


def nothing_is_left(desk: Limiter) -> bool:
    return desk.admission.live == 0 and not desk._waiters


def test_a_thread_waits_for_a_slot_that_another_one_gives_back() -> None:
    with desk_in_a_thread() as desk, ThreadPoolExecutor(1) as pool:
        held = desk.slot_sync(ticket(desk))
        waiting = pool.submit(desk.slot_sync, ticket(desk))
        waits(desk)
        held.settle(OK)
        lease = waiting.result(_PATIENCE_S)
        assert lease.queued_s > 0
        lease.settle(OK)
        assert nothing_is_left(desk)


def test_a_release_in_a_thread_wakes_a_task_of_any_loop_and_the_reverse() -> None:
    with desk_in_a_thread() as desk, ThreadPoolExecutor(1) as pool:
        for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
            held = desk.slot_sync(ticket(desk))

            async def take_and_give() -> None:
                lease = await desk.slot(ticket(desk))
                thread = pool.submit(desk.slot_sync, ticket(desk))
                await asyncio.to_thread(waits, desk)
                lease.settle(OK)
                (await asyncio.wrap_future(thread)).settle(OK)

            def run(factory=factory, take_and_give=take_and_give) -> None:
                with asyncio.Runner(loop_factory=factory) as runner:
                    runner.run(take_and_give())

            other = threading.Thread(target=run)
            other.start()
            waits(desk)
            held.settle(OK)
            other.join(_PATIENCE_S)
            assert not other.is_alive()
            assert nothing_is_left(desk)


def test_a_thread_that_waits_too_long_is_refused_in_time() -> None:
    with desk_in_a_thread() as desk:
        held = desk.slot_sync(ticket(desk))
        asked_at = time.monotonic()
        with pytest.raises(Rejected, match="deadline"):
            desk.slot_sync(ticket(desk, 0.05))
        assert 0.05 <= time.monotonic() - asked_at < _PATIENCE_S
        held.settle(OK)
        assert nothing_is_left(desk)


def test_closing_refuses_threads_and_tasks_that_wait() -> None:
    with desk_in_a_thread() as desk, ThreadPoolExecutor(2) as pool:
        held = desk.slot_sync(ticket(desk))
        thread = pool.submit(desk.slot_sync, ticket(desk))
        task = pool.submit(lambda: asyncio.run(desk.slot(ticket(desk))))
        waits(desk, 2)
        desk.close()
        for waiting in (thread, task):
            with pytest.raises(Rejected, match="shutting down"):
                waiting.result(_PATIENCE_S)
        held.settle(OK)
        assert nothing_is_left(desk)


def test_what_only_time_ends_is_seen_although_nobody_asks_in_the_limiter_s_own_thread() -> None:
    rested = endpoint("chat", ceiling=1)
    with desk_in_a_thread(rested, factory=uvloop.new_event_loop) as desk:
        pause = Ending(Outcome.CONGESTION, (), 0.1)
        desk.slot_sync(ticket(desk)).settle(pause)  # it asked to be left alone for a moment
        lease = desk.slot_sync(ticket(desk))
        assert lease.queued_s > 0.05
        lease.settle(OK)


@pytest.mark.parametrize("in_another_thread", [False, True])
def test_a_task_whose_loop_is_closed_under_it_keeps_nothing(in_another_thread) -> None:
    with desk_in_a_thread() as desk, ThreadPoolExecutor(1) as pool:
        held = desk.slot_sync(ticket(desk))

        def leave_it() -> None:
            loop = asyncio.new_event_loop()
            task = loop.create_task(desk.slot(ticket(desk)))
            task._log_destroy_pending = False
            loop.call_soon(loop.stop)
            loop.run_forever()
            assert len(desk._waiters) == 1
            loop.close()
            kept.append(task)

        kept: list[asyncio.Task] = []
        pool.submit(leave_it).result(_PATIENCE_S) if in_another_thread else leave_it()
        held.settle(OK)  # the slot would be its own, but nobody can tell it
        assert nothing_is_left(desk)
        kept.clear()
        gc.collect()
        desk.slot_sync(ticket(desk)).settle(OK)
        assert nothing_is_left(desk)


def test_slots_still_come_back_when_the_limiter_s_own_loop_is_closed() -> None:
    loop = asyncio.new_event_loop()

    async def made() -> Limiter:
        return Limiter(admission(endpoint("chat", ceiling=1)), loop, time.monotonic)

    desk = loop.run_until_complete(made())
    loop.close()
    with ThreadPoolExecutor(2) as pool:
        held = desk.slot_sync(ticket(desk))
        waiting = [pool.submit(desk.slot_sync, ticket(desk)) for _ in range(2)]
        waits(desk, 2)
        held.settle(Ending(Outcome.CONGESTION, (), 0.01))
        desk.close()
        for each in waiting:
            with pytest.raises(Rejected, match="shutting down"):
                each.result(_PATIENCE_S)
    assert nothing_is_left(desk)


def test_a_task_that_is_cancelled_while_a_thread_hands_it_a_slot_gives_it_back() -> None:
    with desk_in_a_thread() as desk:

        async def be_cancelled() -> None:
            for _ in range(300):
                held = desk.try_slot(ticket(desk))
                assert held is not None
                task = asyncio.create_task(desk.slot(ticket(desk)))
                await asyncio.sleep(0)
                thread = threading.Thread(target=held.settle, args=(OK,))
                thread.start()
                task.cancel()
                (outcome,) = await asyncio.gather(task, return_exceptions=True)
                thread.join(_PATIENCE_S)
                if not isinstance(outcome, asyncio.CancelledError):
                    outcome.settle(OK)
                assert nothing_is_left(desk)

        asyncio.run(be_cancelled())


def test_threads_and_loops_together_never_hold_more_than_there_is_and_leave_nothing() -> None:  # noqa: C901
    endpoints = (endpoint("chat", ceiling=_CEILING),)
    with desk_in_a_thread(*endpoints) as desk:
        counting, inflight, most, done = threading.Lock(), 0, 0, 0

        def note(step: int) -> None:
            nonlocal inflight, most, done
            with counting:
                inflight += step
                most = max(most, inflight)
                done += step > 0

        def patience(rng: random.Random) -> float:
            return rng.choice([0.001, 0.01, _PATIENCE_S])

        def thread(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(150):
                service_class = rng.choice([INTERACTIVE, BEST_EFFORT])
                try:
                    lease = desk.slot_sync(ticket(desk, patience(rng), service_class))
                except Rejected:
                    continue
                note(1)
                time.sleep(rng.choice([0, 0.001]))
                note(-1)
                lease.settle(OK)
                lease.settle(OK)

        async def one(rng: random.Random) -> None:
            lease = await desk.slot(ticket(desk, patience(rng)))
            note(1)
            try:
                await asyncio.sleep(rng.choice([0, 0.001]))
            finally:
                note(-1)
                lease.settle(OK)

        async def tasks(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(40):
                group = [asyncio.create_task(one(rng)) for _ in range(5)]
                await asyncio.sleep(0.001)
                rng.choice(group).cancel()
                await asyncio.gather(*group, return_exceptions=True)

        workers = [threading.Thread(target=thread, args=(seed,)) for seed in range(4)]
        workers += [
            threading.Thread(target=asyncio.run, args=(tasks(seed),)) for seed in range(4, 7)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(4 * _PATIENCE_S)
            assert not worker.is_alive()
        assert most == _CEILING
        assert done > 400
        assert nothing_is_left(desk)
