"""A timer that is set anew all the time."""

from __future__ import annotations

import asyncio

import pytest

from forebay.adapters.upstream.deadline import Deadline

pytestmark = pytest.mark.anyio


class Alarm:
    def __init__(self):
        self.loop = asyncio.get_running_loop()
        self.rang = self.loop.create_future()
        self.deadline = Deadline(self.loop, lambda: self.rang.set_result(self.loop.time()))


async def test_it_calls_when_the_time_has_come():
    alarm = Alarm()
    set_at = alarm.loop.time()
    alarm.deadline.set(0.05)
    assert await asyncio.wait_for(alarm.rang, 5) >= set_at + 0.048


async def test_the_last_setting_counts_when_it_is_later():
    alarm = Alarm()
    set_at = alarm.loop.time()
    alarm.deadline.set(0.01)
    alarm.deadline.set(0.1)
    assert await asyncio.wait_for(alarm.rang, 5) >= set_at + 0.098


async def test_the_last_setting_counts_when_it_is_sooner():
    alarm = Alarm()
    alarm.deadline.set(60)
    alarm.deadline.set(0.01)
    await asyncio.wait_for(alarm.rang, 5)


@pytest.mark.parametrize("way", ["clear", "close"])
async def test_it_does_not_call_when_it_was_given_up(way):
    alarm = Alarm()
    alarm.deadline.set(0.01)
    getattr(alarm.deadline, way)()
    later = Alarm()
    later.deadline.set(0.05)
    await asyncio.wait_for(later.rang, 5)
    assert not alarm.rang.done()


async def test_setting_it_later_takes_no_new_timer():
    alarm = Alarm()
    alarm.deadline.set(60)
    timer = alarm.deadline._handle
    for _ in range(100):
        alarm.deadline.clear()
        alarm.deadline.set(60)
    assert alarm.deadline._handle is timer
    alarm.deadline.close()
