"""How long an endpoint may say nothing in the middle of its answer."""

from __future__ import annotations

import asyncio

import pytest

from forebay.proxy.silence import Silence
from forebay.proxy.tap import StreamTap

pytestmark = pytest.mark.anyio


class Answer:
    """Takes note of being timed out."""

    def __init__(self):
        self.timed_out = asyncio.Event()

    def time_out(self, _after_s):
        self.timed_out.set()


async def test_time_that_the_client_took_for_the_beginning_is_not_the_endpoints_silence():
    loop = asyncio.get_running_loop()
    tap = StreamTap(lambda: loop.time() - 100)
    tap.first(b"data: long ago\n\n")
    answer = Answer()
    started = loop.time()
    silence = Silence(loop, answer, tap, most_s=0.2, deadline=started + 60)
    await asyncio.wait_for(answer.timed_out.wait(), 2)
    silence.stop()
    assert loop.time() - started > 0.15
