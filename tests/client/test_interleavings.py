"""Whatever tasks do, and whenever they are cancelled, the counts are right."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import forebay
from support.sessions import inflight, waiting
from support.virtual_loop import VirtualLoop

LIMITS = {"chat": 2, "embed": 3}
BUDGET = 4


@dataclass(frozen=True)
class Caller:
    """Someone who asks for a slot, and works in it."""

    model: str
    starts_at: int
    works_for: int
    timeout_s: int
    cancelled_after: int | None
    fails: bool
    lowered: bool


callers = st.builds(
    Caller,
    model=st.sampled_from(["chat", "embed"]),
    starts_at=st.integers(0, 8),
    works_for=st.integers(0, 6),
    timeout_s=st.integers(1, 12),
    cancelled_after=st.none() | st.integers(0, 8),
    fails=st.booleans(),
    lowered=st.booleans(),
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(callers, max_size=25))
def test_what_is_in_flight_is_what_runs_and_never_too_much(config, crowd) -> None:
    live: dict[str, int] = dict.fromkeys(LIMITS, 0)

    async def call(fb: forebay.Session, caller: Caller) -> None:
        await asyncio.sleep(caller.starts_at)
        priority = "best-effort" if caller.lowered else None
        async with fb.slot(caller.model, timeout=caller.timeout_s, priority=priority) as lease:
            live[caller.model] += 1
            try:
                assert inflight(fb) >= sum(live.values())  # more are granted, but not awake yet
                assert live[caller.model] <= LIMITS[caller.model]
                assert inflight(fb) <= BUDGET
                await asyncio.sleep(caller.works_for)
                lease.work(1)
                if caller.fails:
                    raise ValueError
            finally:
                live[caller.model] -= 1

    async def main() -> None:
        path = config(chat=LIMITS["chat"], embedding=LIMITS["embed"], budget=BUDGET)
        async with forebay.open(path) as fb:
            loop = asyncio.get_running_loop()
            tasks = []
            for caller in crowd:
                task = asyncio.create_task(call(fb, caller))
                tasks.append(task)
                if caller.cancelled_after is not None:
                    loop.call_later(caller.starts_at + caller.cancelled_after, task.cancel)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(result) for result in results} <= {
                type(None),
                asyncio.CancelledError,
                forebay.Rejected,
                ValueError,
            }
            assert inflight(fb) == waiting(fb) == sum(live.values()) == 0
            for model in LIMITS:
                async with fb.slot(model, timeout=1):
                    pass

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
