"""A session listens to the engines, as the gateway does."""

from __future__ import annotations

import asyncio

import pytest

import forebay
from support.configs import emulated
from support.waiting import eventually

pytestmark = pytest.mark.anyio


def scrapers() -> int:
    return sum(task.get_name().startswith("scrape ") for task in asyncio.all_tasks())


async def test_it_reads_what_the_engines_say_while_it_is_open(host, write) -> None:
    path = write(emulated(host, forebay={"limit": "fixed", "scrape_interval_s": 0.05}))
    async with forebay.open(path) as fb:

        def heard() -> list[bool]:
            return [e["signal"] is not None for e in fb.status()["endpoints"].values()]

        await eventually(lambda: all(heard()))
        engines = {e["engine"] for e in fb.status()["endpoints"].values()}
        assert engines == {"vllm", "tei"}
        assert scrapers() == 2
    assert scrapers() == 0
