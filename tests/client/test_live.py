"""An open session follows its file."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

import forebay
from support.waiting import eventually

pytestmark = pytest.mark.anyio

A, B = "http://127.0.0.1:9/v1", "http://127.0.0.2:9/v1"


def on(*urls, ceiling=1, budget=None):
    servers = [{"base_url": url, "gpu_group": f"gpu-{url[14]}"} for url in urls]
    model = {"id": "m", "endpoints": servers, "engine": "unknown"}
    model |= {"max_concurrent_requests": ceiling}
    budgets = {"GPU_CONCURRENCY_BUDGETS": {"gpu-1": budget}} if budget else {}
    return {"embedding_models": [model], "forebay": {"limit": "fixed"}, **budgets}


def endpoints(fb):
    return {e["base_url"]: e["draining"] for e in fb.status()["endpoints"].values()}


async def test_who_waits_gets_a_slot_where_an_edit_makes_one(write) -> None:
    path = write(on(A))
    async with forebay.open(path) as fb, fb.slot("m"):
        waiting = asyncio.create_task(fb.slot("m").__aenter__())
        await asyncio.sleep(0)
        path.write_text(json.dumps(on(A, B)))
        lease = await asyncio.wait_for(waiting, 5)
        assert lease.endpoint.base_url == B
        lease.give_back()


async def test_an_endpoint_that_goes_is_drained_and_may_be_governed_by_another_then(write) -> None:
    path = write(on(A))
    async with forebay.open(path) as fb:
        async with fb.slot("m"):
            path.write_text(json.dumps(on(B)))
            await eventually(lambda: endpoints(fb) == {A: True, B: False})
            with fb.try_slot("m") as lease:
                assert lease.endpoint.base_url == B
        await eventually(lambda: endpoints(fb) == {B: False})
        other = path.with_name("other.json")
        other.write_text(json.dumps(on(A)))
        async with forebay.open(other):
            pass


async def test_a_batch_goes_on_over_every_edit(write) -> None:
    path = write(on(A, ceiling=2))
    used = set()
    async with forebay.open(path) as fb:

        async def work(item):
            used.add(fb.current_lease().endpoint.base_url)
            await asyncio.sleep(0.01)
            return item

        batch = asyncio.create_task(fb.map_concurrent(work, range(600), model="m"))
        for config, now in (
            (on(A, B, ceiling=2), {A: False, B: False}),
            (on(B, ceiling=1), {B: False}),
            (on(B, A, ceiling=4, budget=3), {B: False, A: False}),
        ):
            path.write_text(json.dumps(config))
            await eventually(lambda now=now: endpoints(fb) == now)
        assert await batch == list(range(600))
    assert used == {A, B}


async def test_what_another_session_governs_is_no_edit_that_counts(write, caplog) -> None:
    caplog.set_level(logging.ERROR)
    path = write(on(A))
    other = path.with_name("other.json")
    other.write_text(json.dumps(on(B)))
    async with forebay.open(path) as fb, forebay.open(other):
        path.write_text(json.dumps(on(A, B)))
        await eventually(lambda: fb.status()["config"]["reload_error"] is not None)
        assert B in fb.status()["config"]["reload_error"]
        assert "the one before stays in force" in caplog.text
        assert endpoints(fb) == {A: False}
