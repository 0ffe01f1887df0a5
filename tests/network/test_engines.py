"""Real engines on hosts of their own, one of which is cut off: its packets are just gone."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from support.flaky import failing_over
from support.waiting import seen

pytestmark = pytest.mark.anyio

# Half a second of work for the engine: whenever it is cut off, some of it is under way.
TEXTS = [f"{number} " + "hosts answer where one was cut off " * 18 for number in range(16)]


async def vectors(site, gateway) -> tuple[set[str], np.ndarray]:
    """Who embedded all texts at once, and what came of it."""
    asks = [site.ask(gateway, "embeddings", {"model": "minilm", "input": t}) for t in TEXTS]
    answers = await asyncio.gather(*asks)
    assert [answer.status for answer in answers] == [200] * len(TEXTS)
    found = np.array([answer.json["data"][0]["embedding"] for answer in answers])
    return {answer.headers["x-forebay-endpoint"] for answer in answers}, found


def inflight(page: dict[str, Any]) -> int:
    return sum(group["inflight"] for group in page["groups"].values())


async def test_vectors_are_the_same_while_it_is_away_and_it_comes_back(site, minilm) -> None:
    primary, shared = site.engine("primary", minilm), site.engine("shared", minilm)
    gateway = site.gateway(
        failing_over(
            f"{primary.root}/v1",
            f"{shared.root}/v1",
            model="minilm",
            fallback_model="minilm",
            forebay={
                "identity": {},
                "timeouts": {"connect_s": 0.5, "first_byte_s": 2},
                "breaker": {"ramp_double_s": 0.3},
            },
        )
    )
    endpoints, before = await vectors(site, gateway)
    assert all(primary.host.address in endpoint for endpoint in endpoints)

    running = asyncio.create_task(vectors(site, gateway))
    await seen(lambda: site.look(gateway, "status"), lambda page: inflight(page) > 0)
    site.network.cut(primary.host)
    await running
    endpoints, away = await vectors(site, gateway)
    assert all(shared.host.address in endpoint for endpoint in endpoints)
    assert np.allclose(away, before, atol=1e-3)

    site.network.mend(primary.host)

    async def served_by() -> set[str]:
        endpoints, _ = await vectors(site, gateway)
        return endpoints

    back = await seen(served_by, lambda all_of: all(primary.host.address in e for e in all_of))
    assert back
