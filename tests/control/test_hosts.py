"""Hosts that come and go, and peers on one GPU, each with the law `knee`: bands for any seed.

The best static limits are known here, so that few need to be tried.
"""

from __future__ import annotations

import pytest
from bench.control.hosts.cases import cases
from bench.control.hosts.measure import measure, oracle


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
@pytest.mark.parametrize("seed", range(3))
def test_hosts_and_peers_stay_within_the_bands(case, seed) -> None:
    record = case.scenario.run(case.seconds, seed=seed)
    best = oracle(case, seed, limits=(8, 12) if case.peers else (16, 32))
    figures = measure(case, record, best)
    assert 0.85 <= figures.share <= 1.1, figures
    assert figures.settled_s <= 1.5 * case.settles_s, figures
    assert (figures.failed, figures.floor_violations) == (0, 0), figures
    if case.peers:
        assert figures.jain >= 0.9, figures
    else:
        assert figures.waiting <= 1, figures
