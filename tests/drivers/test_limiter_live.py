"""What changes while it runs wakes whoever it concerns."""

from __future__ import annotations

import asyncio

import pytest

from forebay.core.model import Ending, Outcome
from forebay.drivers.limiter import Limiter
from forebay.errors import Rejected
from support.deployments import INTERACTIVE, admission, endpoint

pytestmark = pytest.mark.anyio


async def test_endpoints_and_budgets_come_and_go_under_waiting_tasks() -> None:
    core = admission(endpoint("chat", ceiling=1))
    limiter = Limiter(core, asyncio.get_running_loop())

    async def ask():
        return await limiter.slot(limiter.ticket("chat", INTERACTIVE, timeout_s=30))

    first = await ask()
    second = asyncio.ensure_future(ask())
    await asyncio.sleep(0)
    limiter.add(endpoint("chat", host="b", ceiling=2))
    assert (await second).endpoint.id == "chat@b"
    limiter.set_budget("gpu", 2)
    third = asyncio.ensure_future(ask())
    await asyncio.sleep(0)
    limiter.set_budget("gpu", None)
    assert (await third).endpoint.id == "chat@b"
    fourth = asyncio.ensure_future(ask())
    await asyncio.sleep(0)
    limiter.set_bounds("chat@a", 1, 2)
    assert (await fourth).endpoint.id == "chat@a"

    fifth = asyncio.ensure_future(ask())
    await asyncio.sleep(0)
    for endpoint_id in ("chat@a", "chat@b"):
        limiter.drain(endpoint_id)
    with pytest.raises(Rejected):
        await fifth
    with pytest.raises(ValueError, match="in flight"):
        limiter.remove("chat@a")
    for lease in (first, await second, await third, await fourth):
        lease.settle(Ending(Outcome.OK))
    for endpoint_id in ("chat@a", "chat@b"):
        limiter.remove(endpoint_id)
    assert not core.states


async def test_it_tells_when_nothing_runs_any_more_at_an_endpoint_that_drains() -> None:
    core = admission(endpoint("chat", ceiling=2), endpoint("chat", host="b", ceiling=2))
    limiter = Limiter(core, asyncio.get_running_loop())

    async def ask():
        return await limiter.slot(limiter.ticket("chat", INTERACTIVE, timeout_s=30))

    leases = [await ask() for _ in range(4)]
    limiter.drain("chat@a")
    empty = asyncio.ensure_future(limiter.empty("chat@a"))
    await asyncio.sleep(0)
    on_a = [lease for lease in leases if lease.endpoint.id == "chat@a"]
    for lease in leases:
        assert not empty.done()
        lease.settle(Ending(Outcome.OK))
        if lease is on_a[-1]:
            break
    await empty
    await limiter.empty("chat@a")
    limiter.remove("chat@a")
    limiter.signal("chat@a", None)  # a read of its metrics that was under way


async def test_an_endpoint_moves_to_another_gpu_under_waiting_tasks() -> None:
    core = admission(endpoint("chat"), endpoint("lite"), budgets={"gpu": 2})
    limiter = Limiter(core, asyncio.get_running_loop())
    for model in ("chat", "lite"):
        await limiter.slot(limiter.ticket(model, INTERACTIVE, timeout_s=30))
    third = asyncio.ensure_future(limiter.slot(limiter.ticket("chat", INTERACTIVE, timeout_s=30)))
    await asyncio.sleep(0)
    limiter.move("lite@a", "other")
    assert (await third).endpoint.id == "chat@a"
    limiter.change(endpoint("lite", group="other", ceiling=1))
    assert core.states["lite@a"].limit == 1
