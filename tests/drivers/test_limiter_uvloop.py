"""On uvloop, whose timers of less than half a millisecond are no timers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from forebay.core.model import Ending, Outcome
from forebay.core.protection import ProtectionSettings
from forebay.drivers.limiter import Limiter
from support.deployments import BEST_EFFORT, INTERACTIVE, admission, endpoint

if TYPE_CHECKING:
    from forebay.drivers.lease import Lease

pytestmark = pytest.mark.anyio

OK = Ending(Outcome.OK)


@pytest.fixture
def anyio_backend():
    return ("asyncio", {"use_uvloop": True})


async def take(desk: Limiter, model: str, service_class) -> Lease:
    return await desk.slot(desk.ticket(model, service_class, timeout_s=10.0))


async def test_pauses_shorter_than_a_timer_end_and_nothing_is_lost() -> None:
    core = admission(
        endpoint("chat"), endpoint("embed", interactive=False), protection=ProtectionSettings()
    )
    desk = Limiter(core, asyncio.get_running_loop())
    chat = await take(desk, "chat", INTERACTIVE)
    (guard,) = {room.guard for room in core.rooms.values()}
    guard._steering.share.value = 0.9  # one at a time, with pauses of a tenth in between

    async def work() -> None:
        for _ in range(20):
            lease = await take(desk, "embed", BEST_EFFORT)
            await asyncio.sleep(0.001)
            lease.settle(OK)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(work())
    chat.settle(OK)
    assert core.live == 0
    assert not any(len(queue) for queue in core.queues.values())
