"""Several hosts of one model, one of them four times as slow: nothing of either is left unused."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from forebay import sim
from forebay.core.limits.knee import Knee

EXAMPLE = Path(__file__).parent / "examples" / "slow_host.py"
PAGE = (Path(__file__).parents[2] / "docs" / "routing.md").read_text("utf-8")
HOSTS = tuple(sim.endpoint("m", group=host, interactive=False) for host in ("fast", "slow"))
SIZES = sim.lognormal(400, sigma=0.5, texts=8)
SECONDS = 300.0


def with_slow_host(hosts=HOSTS, *, loads, **more) -> sim.Scenario:
    return sim.Scenario(
        servers=dict.fromkeys(hosts, sim.EncoderSpec()),
        loads=loads,
        changes=[(0.0, sim.changes.capacity("slow", 0.25))] if HOSTS[1] in hosts else [],
        scrape=sim.Scrape(),
        **more,
    )


def per_s(scenario: sim.Scenario, seed: int) -> float:
    return scenario.run(SECONDS, seed=seed).select("m", since=60.0).requests_per_s


@pytest.mark.parametrize("law", [sim.fixed_limit, lambda e: Knee(e.floor, e.ceiling)])
def test_a_backlog_gets_what_both_hosts_do_alone_together(law) -> None:
    backlog = sim.Closed(model="m", workers=128, sizes=SIZES)
    ideal = sum(per_s(with_slow_host((host,), loads=[backlog], law=law), 1) for host in HOSTS)
    assert per_s(with_slow_host(loads=[backlog], law=law), 1) >= 0.95 * ideal


@pytest.mark.parametrize("seed", range(3))
def test_arrivals_near_what_both_can_do_are_all_served(seed) -> None:
    backlog = sim.Closed(model="m", workers=128, sizes=SIZES)
    ideal = sum(per_s(with_slow_host((host,), loads=[backlog]), seed) for host in HOSTS)
    arrivals = sim.Open(model="m", rate=sim.steady(0.95 * ideal), sizes=SIZES)
    record = with_slow_host(loads=[arrivals]).run(SECONDS, seed=seed)
    assert record.select("m", since=60.0).requests_per_s >= 0.97 * 0.95 * ideal


def test_the_page_shows_the_example_and_what_it_prints(capsys) -> None:
    runpy.run_path(str(EXAMPLE))
    printed = capsys.readouterr().out
    assert f"```python\n{EXAMPLE.read_text('utf-8')}```\n\n```\n{printed}```" in PAGE
