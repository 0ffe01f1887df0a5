"""Several models on one GPU, each with the law that finds its limit: who gets what."""

from __future__ import annotations

from statistics import fmean

import pytest

from forebay import sim
from forebay.core.limits.knee import Knee

SLOTS = 8
PHASES = {"one": (40, 100), "two": (130, 200), "three": (230, 300), "two again": (330, 400)}


def jain(shares: list[float]) -> float:
    """1 if all are alike, 1/n if one has everything (Jain, Chiu and Hawe 1984)."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


@pytest.mark.parametrize("seed", range(3))
def test_best_effort_peers_that_come_and_go_share_the_budget_alike(seed: int) -> None:
    spans = {"a": (0.0, 400.0), "b": (100.0, 400.0), "c": (200.0, 300.0)}
    endpoints = {name: sim.endpoint(name, interactive=False) for name in spans}
    record = sim.Scenario(
        servers={endpoint: sim.EncoderSpec() for endpoint in endpoints.values()},
        loads=[
            sim.Closed(
                model=name,
                workers=32,
                sizes=sim.lognormal(640, sigma=0.5, texts=16),
                since_s=since,
                until_s=until,
            )
            for name, (since, until) in spans.items()
        ],
        budgets={"gpu": SLOTS},
        law=lambda endpoint: Knee(endpoint.floor, endpoint.ceiling),
    ).run(400.0, seed=seed)
    assert record.floor_violations == 0
    for name, (since, until) in PHASES.items():
        there = [n for n, (a, b) in spans.items() if a < since and b >= until]
        inflight = [
            fmean(s.inflight for s in record.samples_of(endpoints[n].id, since=since, until=until))
            for n in there
        ]
        assert sum(inflight) <= SLOTS, name
        assert sum(inflight) >= 0.9 * SLOTS, (name, inflight)
        assert jain(inflight) >= 0.95, (name, inflight)
