"""Slots for tasks: waiting, cancelling, closing, in every order that an event loop allows."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

import pytest

from forebay.core.breaker import BreakerSettings
from forebay.core.limits.fixed import Fixed
from forebay.core.model import (
    Ending,
    EngineState,
    Outcome,
    Reason,
    ServiceClass,
    Signal,
    Timing,
    TimingKind,
)
from forebay.core.queue import QueueBounds
from forebay.drivers.limiter import Limiter
from forebay.errors import Rejected
from support.deployments import BEST_EFFORT, INTERACTIVE, admission, endpoint
from support.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from forebay.drivers.lease import Lease

OK = Ending(Outcome.OK)
FAILED = Ending(Outcome.FAILURE)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return ("asyncio", {"loop_factory": VirtualLoop})


def limiter(ceiling: int = 1, **more) -> Limiter:
    more.setdefault("breaker", BreakerSettings(jitter=0.0))
    core = admission(endpoint("chat", ceiling=ceiling), **more)
    return Limiter(core, asyncio.get_running_loop())


def ask(desk: Limiter, timeout_s: float = 60.0, **more) -> asyncio.Task[Lease]:
    service_class = more.pop("service_class", INTERACTIVE)
    ticket = desk.ticket("chat", service_class, timeout_s=timeout_s, **more)
    return asyncio.ensure_future(desk.slot(ticket))


async def take(desk: Limiter, **more) -> Lease:
    return await ask(desk, **more)


async def turn_around() -> None:
    """Let everything that is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)


def nothing_is_left(desk: Limiter) -> bool:
    core = desk.admission
    return (
        core.live == 0
        and not desk._waiters
        and not any(len(queue) for queue in core.queues.values())
        and not any(state.inflight for state in core.states.values())
        and not any(room.inflight for room in core.rooms.values())
    )


# -- waiting -------------------------------------------------------------------------------------


async def test_a_free_slot_is_taken_without_waiting() -> None:
    desk = limiter()
    lease = await take(desk)
    assert lease.queued_s == 0.0
    assert lease.endpoint.id == "chat@a"
    assert not lease.is_probe
    lease.settle(OK)
    assert nothing_is_left(desk)


async def test_waiters_get_their_slots_in_order_when_others_give_theirs_back() -> None:
    desk = limiter()
    first = await take(desk)
    waiting = [ask(desk) for _ in range(3)]
    for task in waiting:
        await asyncio.sleep(2.0)
        assert not task.done()
        first.settle(OK)
        first = await task
    assert first.queued_s == 6.0
    first.settle(OK)
    assert nothing_is_left(desk)


async def test_a_lease_counts_once_however_often_it_is_settled() -> None:
    desk = limiter(2)
    one, other = await take(desk), await take(desk)
    assert repr(one) == "<Lease of chat@a held>"
    one.settle(OK)
    one.settle(FAILED)
    assert repr(one) == "<Lease of chat@a settled>"
    assert desk.admission.live == 1
    other.settle(OK)
    assert nothing_is_left(desk)


async def test_the_slot_of_a_refused_request_was_never_taken() -> None:
    desk = limiter(bounds=QueueBounds(max_requests=0))
    lease = await take(desk)
    assert desk.admission.live == 1
    with pytest.raises(Rejected, match="the queue of 'chat' is full") as refused:
        await take(desk)
    assert refused.value.reason == Reason.QUEUE_FULL
    assert refused.value.retry_after_s == 1
    lease.settle(OK)
    assert nothing_is_left(desk)


async def test_an_unknown_model_is_named() -> None:
    desk = limiter()
    ticket = desk.ticket("gpt-9", INTERACTIVE, timeout_s=1.0)
    with pytest.raises(Rejected, match="no model 'gpt-9' is configured"):
        await desk.slot(ticket)


# -- not waiting ---------------------------------------------------------------------------------


async def test_trying_takes_a_free_slot_and_never_waits_for_one() -> None:
    desk = limiter()
    lease = desk.try_slot(desk.ticket("chat", INTERACTIVE, timeout_s=1.0))
    assert lease is not None
    assert desk.try_slot(desk.ticket("chat", INTERACTIVE, timeout_s=1.0)) is None
    assert not any(len(queue) for queue in desk.admission.queues.values())
    lease.settle(OK)
    assert nothing_is_left(desk)


async def test_trying_does_not_overtake_whoever_waits() -> None:
    desk = limiter()
    lease = await take(desk)
    waiting = ask(desk)
    await turn_around()
    lease.settle(OK)
    assert desk.try_slot(desk.ticket("chat", INTERACTIVE, timeout_s=1.0)) is None
    (await waiting).settle(OK)
    assert nothing_is_left(desk)


async def test_trying_tells_apart_not_now_and_not_at_all() -> None:
    desk = limiter(3)
    for lease in [await take(desk) for _ in range(3)]:
        lease.settle(FAILED)
    with pytest.raises(Rejected, match="'chat' has no healthy endpoint now"):
        desk.try_slot(desk.ticket("chat", INTERACTIVE, timeout_s=1.0))


# -- deadlines -----------------------------------------------------------------------------------


async def test_whoever_waits_is_refused_at_the_deadline() -> None:
    desk = limiter()
    lease = await take(desk)
    with pytest.raises(Rejected, match="no slot for 'chat' became free before the deadline"):
        await take(desk, timeout_s=7.5)
    assert desk.now() == 7.5
    assert not any(len(queue) for queue in desk.admission.queues.values())
    lease.settle(OK)
    assert nothing_is_left(desk)


async def test_whoever_stood_behind_a_heavy_request_starts_at_its_deadline() -> None:
    desk = limiter(2)
    lease = await take(desk)
    heavy, light = ask(desk, timeout_s=5.0, weight=2), ask(desk)
    (await light).settle(OK)
    assert desk.now() == 5.0
    with pytest.raises(Rejected):
        await heavy
    lease.settle(OK)
    assert nothing_is_left(desk)


@pytest.mark.parametrize("settled_first", [True, False])
async def test_a_slot_that_becomes_free_exactly_at_the_deadline_goes_to_the_next(
    settled_first,
) -> None:
    desk = limiter()
    lease = await take(desk)
    loop = asyncio.get_running_loop()
    if settled_first:
        loop.call_at(5.0, lease.settle, OK)
    late, next_one = ask(desk, timeout_s=5.0), ask(desk)
    await turn_around()
    if not settled_first:
        loop.call_at(5.0, lease.settle, OK)
    with pytest.raises(Rejected) as refused:
        await late
    assert refused.value.reason == Reason.DEADLINE
    (await next_one).settle(OK)
    assert desk.now() == 5.0
    assert nothing_is_left(desk)


async def test_a_request_without_a_deadline_waits_for_as_long_as_it_takes() -> None:
    desk = limiter()
    lease = await take(desk)
    waiting = ask(desk, timeout_s=float("inf"))
    await asyncio.sleep(1e6)
    lease.settle(OK)
    (await waiting).settle(OK)
    assert nothing_is_left(desk)


async def test_a_deadline_of_one_that_got_its_slot_does_nothing() -> None:
    desk = limiter()
    lease = await take(desk)
    waiting = ask(desk, timeout_s=5.0)
    await turn_around()
    lease.settle(OK)
    lease = await waiting
    await asyncio.sleep(10.0)
    assert desk.admission.live == 1
    lease.settle(OK)
    assert nothing_is_left(desk)


# -- cancellation --------------------------------------------------------------------------------


async def test_a_cancelled_waiter_leaves_the_queue() -> None:
    desk = limiter()
    lease = await take(desk)
    waiting = ask(desk)
    await turn_around()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    lease.settle(OK)
    assert nothing_is_left(desk)


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_a_slot_that_is_granted_in_the_tick_of_a_cancellation_goes_to_the_next(
    cancelled_first,
) -> None:
    desk = limiter()
    lease = await take(desk)
    leaving, staying = ask(desk), ask(desk)
    await turn_around()
    if cancelled_first:
        leaving.cancel()
        lease.settle(OK)
    else:
        lease.settle(OK)
        leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    (await staying).settle(OK)
    assert nothing_is_left(desk)


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_a_refusal_in_the_tick_of_a_cancellation_is_a_cancellation(cancelled_first) -> None:
    desk = limiter(3)
    leases = [await take(desk) for _ in range(3)]
    leaving = [ask(desk) for _ in range(3)]
    await turn_around()
    if cancelled_first:
        for task in leaving:
            task.cancel()
    desk.signal("chat@a", Signal("vllm", at=0.0, state=EngineState.ASLEEP))
    if not cancelled_first:
        for task in leaving:
            task.cancel()
    ends = await asyncio.gather(*leaving, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * 3
    for lease in leases:
        lease.settle(OK)
    assert nothing_is_left(desk)


async def test_any_number_may_be_cancelled_in_the_tick_in_which_a_slot_becomes_free() -> None:
    desk = limiter(bounds=QueueBounds(max_requests=5000))
    lease = await take(desk)
    leaving, staying = [ask(desk) for _ in range(3000)], ask(desk)
    await turn_around()
    for task in leaving:
        task.cancel()
    lease.settle(OK)
    (await staying).settle(OK)
    await asyncio.gather(*leaving, return_exceptions=True)
    assert nothing_is_left(desk)


async def test_whoever_a_cancelled_heavy_request_held_back_starts() -> None:
    desk = limiter(2)
    lease = await take(desk)
    heavy, light = ask(desk, weight=2), ask(desk)
    await turn_around()
    heavy.cancel()
    (await light).settle(OK)
    lease.settle(OK)
    assert nothing_is_left(desk)


async def test_a_coroutine_that_is_thrown_away_while_it_waits_leaves_the_queue() -> None:
    desk = limiter()
    lease = await take(desk)
    waiting = desk.slot(desk.ticket("chat", INTERACTIVE, timeout_s=60.0))
    waiting.send(None)
    waiting.close()
    lease.settle(OK)
    await turn_around()
    assert nothing_is_left(desk)


async def test_a_coroutine_that_is_thrown_away_after_its_grant_gives_the_slot_back() -> None:
    desk = limiter()
    lease = await take(desk)
    waiting = desk.slot(desk.ticket("chat", INTERACTIVE, timeout_s=60.0))
    waiting.send(None)
    lease.settle(OK)
    assert desk.admission.live == 1
    waiting.close()
    await turn_around()
    assert nothing_is_left(desk)


# -- closing -------------------------------------------------------------------------------------


async def test_closing_refuses_whoever_waits_or_comes_and_lets_the_rest_finish() -> None:
    desk = limiter()
    lease = await take(desk)
    waiting = ask(desk)
    await turn_around()
    desk.close()
    for task in (waiting, ask(desk)):
        with pytest.raises(Rejected, match="shutting down") as refused:
            await task
        assert refused.value.reason == Reason.SHUTTING_DOWN
        assert refused.value.retry_after_s == 1
    assert desk.admission.live == 1
    lease.settle(OK)
    assert nothing_is_left(desk)


async def test_closing_grants_nothing_to_those_it_refuses() -> None:
    """Those behind a heavy request would fit once it has left."""
    desk = limiter(3)
    lease = await take(desk)
    waiting = [ask(desk, weight=3), ask(desk), ask(desk)]
    await turn_around()
    desk.close()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [end.reason for end in ends] == [Reason.SHUTTING_DOWN] * 3
    lease.settle(OK)
    assert nothing_is_left(desk)


async def test_closing_stops_the_clock() -> None:
    desk = limiter()
    lease = await take(desk)
    waiting = ask(desk)
    await turn_around()
    lease.settle(Ending(Outcome.CONGESTION, retry_after_s=7.0))
    desk.close()
    with pytest.raises(Rejected):
        await waiting
    assert desk._alarm._timer is None


# -- what time alone changes ---------------------------------------------------------------------


async def test_whoever_waits_for_an_endpoint_that_is_left_alone_starts_in_time() -> None:
    desk = limiter(2)
    first, second = await take(desk), await take(desk)
    waiting = ask(desk, timeout_s=600.0)
    await turn_around()
    first.settle(Ending(Outcome.CONGESTION, retry_after_s=7.0))
    (await waiting).settle(OK)
    assert desk.now() == 7.0
    second.settle(OK)
    assert nothing_is_left(desk)


async def test_the_earliest_of_several_times_counts() -> None:
    core = admission(
        endpoint("chat", ceiling=1), endpoint("embed", ceiling=1, interactive=False, group="other")
    )
    desk = Limiter(core, asyncio.get_running_loop())

    async def pause(model: str, service_class: ServiceClass, seconds: float) -> asyncio.Task[Lease]:
        lease = await desk.slot(desk.ticket(model, service_class, timeout_s=600.0))
        waiting = asyncio.ensure_future(
            desk.slot(desk.ticket(model, service_class, timeout_s=600.0))
        )
        await turn_around()
        lease.settle(Ending(Outcome.CONGESTION, retry_after_s=seconds))
        return waiting

    late = await pause("chat", INTERACTIVE, 20.0)
    early = await pause("embed", BEST_EFFORT, 10.0)
    (await early).settle(OK)
    assert desk.now() == 10.0
    (await late).settle(OK)
    assert desk.now() == 20.0
    assert nothing_is_left(desk)


async def test_whoever_comes_when_the_pause_is_over_wakes_the_one_that_waited() -> None:
    desk = limiter(2)
    first = await take(desk)
    first.settle(Ending(Outcome.CONGESTION, retry_after_s=7.0))
    waiting = ask(desk)
    await turn_around()
    asyncio.get_running_loop().be_late(8.0)
    lease = desk.try_slot(desk.ticket("chat", INTERACTIVE, timeout_s=1.0))
    await turn_around()
    assert waiting.done()
    waiting.result().settle(OK)
    lease.settle(OK)
    assert nothing_is_left(desk)


async def test_the_slot_goes_to_the_one_that_waited_even_if_somebody_else_comes_first() -> None:
    desk = limiter()
    first = await take(desk)
    first.settle(Ending(Outcome.CONGESTION, retry_after_s=7.0))
    waiting = ask(desk)
    await turn_around()
    asyncio.get_running_loop().be_late(8.0)
    newcomer = ask(desk)
    await turn_around()
    assert waiting.done()
    assert not newcomer.done()
    waiting.result().settle(OK)
    (await newcomer).settle(OK)
    assert nothing_is_left(desk)


async def test_whoever_is_refused_when_the_pause_is_over_wakes_the_one_that_waited() -> None:
    desk = limiter(2, bounds=QueueBounds(max_requests=1))
    first = await take(desk)
    first.settle(Ending(Outcome.CONGESTION, retry_after_s=7.0))
    waiting = ask(desk)
    await turn_around()
    asyncio.get_running_loop().be_late(8.0)
    with pytest.raises(Rejected):
        desk.try_slot(desk.ticket("chat", INTERACTIVE, timeout_s=1.0))
    await turn_around()
    assert waiting.done()
    waiting.result().settle(OK)
    assert nothing_is_left(desk)


async def test_a_time_at_which_nobody_waits_any_more_passes_unnoticed() -> None:
    desk = limiter()
    lease = await take(desk)
    waiting = ask(desk, timeout_s=2.0)
    await turn_around()
    lease.settle(Ending(Outcome.CONGESTION, retry_after_s=7.0))
    with pytest.raises(Rejected):
        await waiting
    await asyncio.sleep(60.0)
    assert nothing_is_left(desk)


# -- what is passed on ---------------------------------------------------------------------------


async def test_a_probe_says_so_and_whoever_waits_is_refused_meanwhile() -> None:
    desk = limiter(3)
    for lease in [await take(desk) for _ in range(3)]:
        lease.settle(FAILED)
    await asyncio.sleep(5.0)
    probe = await take(desk)
    assert probe.is_probe
    assert probe.probe_timeout_s == 15.0
    with pytest.raises(Rejected) as refused:
        await take(desk)
    assert refused.value.retry_after_s == 15.0
    probe.settle(OK)
    after = await take(desk)
    assert after.probe_timeout_s == inf
    after.settle(OK)
    assert nothing_is_left(desk)


async def test_readings_count_while_the_request_runs_and_not_after() -> None:
    heard = []

    class Law(Fixed):
        def on_timing(self, timing, **_) -> None:
            heard.append(timing)

    desk = limiter(law=lambda e: Law(e.floor, e.ceiling))
    lease = await take(desk)
    reading = Timing(TimingKind.FIRST_TOKEN, 0.2, 10)
    lease.timing(reading)
    lease.settle(OK)
    lease.timing(reading)
    assert heard == [reading]


async def test_what_an_engine_says_is_passed_on() -> None:
    desk = limiter()
    lease = await take(desk)
    waiting = ask(desk)
    await turn_around()
    desk.signal("chat@a", Signal("vllm", at=0.0, state=EngineState.LOADING))
    with pytest.raises(Rejected, match="'chat' is still being loaded"):
        await waiting
    lease.settle(OK)
    assert nothing_is_left(desk)
