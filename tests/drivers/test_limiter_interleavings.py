"""In whatever order tasks ask, leave, end and time out: every slot comes back."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.breaker import BreakerSettings
from forebay.core.model import Ending, EngineState, Outcome, Signal
from forebay.core.queue import QueueBounds
from forebay.drivers.limiter import Limiter
from forebay.errors import Rejected
from support.deployments import BEST_EFFORT, INTERACTIVE, admission, endpoint
from support.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.drivers.lease import Lease

MODELS = ("chat", "embed")
OUTCOMES = [Outcome.OK, Outcome.FAILURE, Outcome.CANCELLED, Outcome.CONGESTION]

asks = st.tuples(
    st.just("ask"),
    st.sampled_from(MODELS),
    st.sampled_from([INTERACTIVE, BEST_EFFORT]),
    st.sampled_from([0, 1, 3]),  # weight
    st.sampled_from([0.0, 1.0, 2.0, 50.0]),  # patience
)
tries = st.tuples(st.just("try"), st.sampled_from(MODELS))
ends = st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(OUTCOMES))
cancels = st.tuples(st.just("cancel"), st.integers(0, 9))
waits = st.tuples(st.just("wait"), st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.0, 30.0]))
signals = st.tuples(st.just("signal"), st.sampled_from(MODELS), st.sampled_from(EngineState))
histories = st.lists(st.one_of(asks, asks, ends, cancels, waits, tries, signals), max_size=40)


@dataclass
class Office:
    """Some tasks that want slots, and what they got so far."""

    desk: Limiter
    second: float  # how long one lasts
    tasks: list[asyncio.Task[Lease]]
    leases: list[Lease]

    def ask(self, model, service_class, weight, patience) -> None:
        ticket = self.desk.ticket(
            model, service_class, timeout_s=patience * self.second, weight=weight
        )
        self.tasks.append(asyncio.ensure_future(self.desk.slot(ticket)))

    def try_(self, model) -> None:
        try:
            lease = self.desk.try_slot(self.desk.ticket(model, INTERACTIVE, timeout_s=1.0))
        except Rejected:
            return
        if lease is not None:
            self.leases.append(lease)

    def end(self, index, outcome) -> None:
        if self.leases:
            pause_s = 2.0 * self.second if outcome is Outcome.CONGESTION else None
            self.leases.pop(index % len(self.leases)).settle(Ending(outcome, (), pause_s))

    def cancel(self, index) -> None:
        if self.tasks:
            self.tasks[index % len(self.tasks)].cancel()

    def signal(self, model, state) -> None:
        self.desk.signal(f"{model}@a", Signal("vllm", at=self.desk.now(), state=state))

    async def wait(self, seconds) -> None:
        await asyncio.sleep(seconds * self.second)
        self.collect()

    def collect(self) -> None:
        """Pick up the slots of the tasks that have one."""
        for task in [t for t in self.tasks if t.done()]:
            self.tasks.remove(task)
            if not task.cancelled() and task.exception() is None:
                self.leases.append(task.result())


async def live_through(history, *, second: float, close: bool) -> None:
    problems: list[dict] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context))
    core = admission(
        endpoint("chat", ceiling=2),
        endpoint("chat", ceiling=1, host="b", group="other"),
        endpoint("embed", ceiling=4, interactive=False),
        budgets={"gpu": 4},
        breaker=BreakerSettings(fail_threshold=2, base_cooldown_s=5 * second, jitter=0.0),
        bounds=QueueBounds(max_requests=4),
        max_overtakes=2,
    )
    office = Office(Limiter(core, loop), second, [], [])
    for what, *more in history:
        outcome = getattr(office, {"try": "try_"}.get(what, what))(*more)
        if what == "wait":
            await outcome
        assert core.live >= len(office.leases)
        for state in core.states.values():
            assert 0 <= state.inflight <= state.limit
        assert core.rooms["gpu"].inflight <= 4
    if close:
        office.desk.close()
    while office.tasks or office.leases:  # the virtual loop raises if this would wait for ever
        office.end(0, Outcome.OK)
        if office.tasks and not office.leases:
            await asyncio.wait(office.tasks, return_when=asyncio.FIRST_COMPLETED)
        office.collect()
    assert core.live == 0
    assert all(room.inflight == 0 for room in core.rooms.values())
    assert all(state.inflight == 0 for state in core.states.values())
    assert all(len(queue) == 0 for queue in core.queues.values())
    assert not office.desk._waiters
    del office
    gc.collect()
    assert not problems


@settings(deadline=None, max_examples=300)
@given(history=histories, close=st.booleans())
def test_every_slot_comes_back(history, close) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(live_through(history, second=1.0, close=close))


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@settings(deadline=None, max_examples=40)
@given(history=histories, close=st.booleans())
def test_every_slot_comes_back_in_real_time(loop_factory: Callable, history, close) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(live_through(history, second=1e-5, close=close))
