"""Every scenario of the comparison of limit laws, with the law `knee`, within its file's bands.

The best static limits are known here (`knees` in the file), so that few need to be tried.
"""

from __future__ import annotations

from dataclasses import asdict

import pytest
from bench.control import laws, measure, spec

SEEDS = range(3)
# Beside the best static limit: how much of its work others do, where a limit is on its way or rests
# lower. A straight line between points far apart would lie below a curve that bends.
BESIDE = (0.5, 0.71, 0.84)


@pytest.mark.parametrize("name", spec.names())
def test_the_law_stays_within_the_bands(name: str) -> None:
    scenario = spec.load(name)
    tried = {round(part * knee) for knee in scenario.knees for part in (*BESIDE, 1)}
    for seed in SEEDS:
        record = measure.run(scenario, laws.make(laws.OURS), seed)
        curves = measure.static(scenario, seed, sorted(n for n in tried if n >= 1))
        figures = asdict(measure.measure(scenario, record, curves))
        for figure, (least, most) in scenario.bands.items():
            assert least <= figures[figure] <= most, (figure, seed, figures)


def test_a_run_is_the_same_whenever_it_is_run() -> None:
    scenario = spec.load("sigma-15")
    first, again = (measure.run(scenario, laws.make(laws.OURS), 1) for _ in range(2))
    assert first.limits == again.limits
