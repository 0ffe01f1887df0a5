"""How fast the simulator is: an hour of ten requests a second over four hosts, in CPU seconds.

python -m bench.sim
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import TYPE_CHECKING

from forebay.core.limits.gradient_aimd import GradientAimd
from forebay.sim import (
    Closed,
    EncoderSpec,
    LlmSpec,
    Open,
    Scenario,
    Scrape,
    endpoint,
    fixed,
    fixed_limit,
    lognormal,
    steady,
)

from . import report, results

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core.limits.protocol import Limit
    from forebay.core.model import Endpoint

_HOUR_S = 3600.0
_HOSTS = 4
_GOAL_S = 5.0
_AGAINST = "CPU time of one core, as everything that is recorded is"


def _adaptive(endpoint: Endpoint) -> Limit:
    return GradientAimd(endpoint.floor, endpoint.ceiling)


def four_hosts(law: Callable[[Endpoint], Limit]) -> Scenario:
    """Chat on four GPUs: 10 requests a second, prompts of 500 and answers of 150 tokens, uneven."""
    hosts = [endpoint("chat", group=f"gpu-{n}", floor=8, ceiling=64) for n in range(_HOSTS)]
    return Scenario(
        servers={host: LlmSpec() for host in hosts},
        loads=[Open(model="chat", rate=steady(10), sizes=lognormal(500, 150, sigma=1.0))],
        law=law,
        scrape=Scrape(),
    )


def storm() -> Scenario:
    """One GPU: light chat beside 32 workers who embed without a pause."""
    chat = endpoint("chat", floor=2, ceiling=32)
    embed = endpoint("embed", interactive=False, ceiling=32)
    return Scenario(
        servers={chat: LlmSpec(), embed: EncoderSpec()},
        budgets={"gpu": 6},
        loads=[
            Open(model="chat", rate=steady(0.5), sizes=lognormal(300, 60, sigma=1.0)),
            Closed(model="embed", workers=32, sizes=fixed(640, texts=16)),
        ],
        scrape=Scrape(),
    )


def cost_s(scenario: Scenario, rounds: int) -> tuple[float, int]:
    """Return the median CPU time of an hour, seconds, and how many requests it had."""
    costs, requests = [], 0
    for seed in range(rounds):
        start = time.process_time()
        record = scenario.run(_HOUR_S, seed=seed)
        costs.append(time.process_time() - start)
        requests = len(record.requests)
    return median(costs), requests


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description="How fast the simulator is.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    found = []
    for name, scenario, goal in (
        ("10 requests/s over 4 hosts, fixed limit", four_hosts(fixed_limit), True),
        ("10 requests/s over 4 hosts, gradient_aimd", four_hosts(_adaptive), True),
        ("chat beside an embedding storm on one GPU", storm(), False),
    ):
        seconds, requests = cost_s(scenario, arguments.rounds)
        print(f"{name}: {seconds:.2f} s, {requests} requests", flush=True)
        measure = f"a simulated hour: {name}"
        if goal:
            found.append(results.at_most(measure, seconds, "s", _GOAL_S, against=_AGAINST))
        else:
            found.append(results.noted(measure, seconds, "s", against=f"{requests} requests"))
    if not arguments.dry:
        path = results.write("sim", command="make bench-sim (python -m bench.sim)", results=found)
        report.update()
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
