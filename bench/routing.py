"""The routing benchmark: what a decision costs over many endpoints, and how well they are used.

A decision is one request that starts at once at one of 1,000 endpoints of a model, while 10,000
requests are in flight; after each, one of those ends. It is CPU time, not wall time, so that
others' work does not count.

    python -m bench.routing
"""

from __future__ import annotations

import argparse
import random
import time
from itertools import count
from typing import TYPE_CHECKING

from forebay import sim
from forebay.core.build import build
from forebay.core.limits.fixed import Fixed
from forebay.core.limits.knee import Knee
from forebay.core.model import Ending, Endpoint, Outcome, ServiceClass, Ticket

from . import report, results

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core.admission import Admission, Grant
    from forebay.core.limits.protocol import Limit

_ENDPOINTS, _IN_FLIGHT, _CEILING = 1_000, 10_000, 16
_KEYS = 10_000
_WARM_UP = 150_000  # keys; all of 16,384 buckets have been met then
_GOAL_US = 60
_ENDED = Ending(Outcome.OK)
_SECONDS, _WARM_S = 600.0, 60.0


def _endpoint(number: int, ceiling: int = _CEILING) -> Endpoint:
    return Endpoint(
        id=f"model@host-{number}",
        model="model",
        base_url=f"http://host-{number}/v1",
        gpu_group=f"gpu-{number}",
        role="chat",
        service_class=ServiceClass.INTERACTIVE,
        floor=1,
        ceiling=ceiling,
    )


def _admission(endpoints: int, rng: random.Random, ceiling: int = _CEILING) -> Admission:
    return build(
        [_endpoint(number, ceiling) for number in range(endpoints)],
        {},
        law=lambda endpoint: Fixed(endpoint.floor, endpoint.ceiling),
        rng=rng,
    )


class World:
    """One model on many endpoints, with a constant number of requests in flight."""

    def __init__(self, in_flight: int = _IN_FLIGHT, ceiling: int = _CEILING) -> None:
        self._random = random.Random(1)
        self._admission = _admission(_ENDPOINTS, self._random, ceiling)
        self._running: list[Grant] = []
        self._now = 0.0
        for _ in range(in_flight):
            self._ask(None)

    def costs_us(self, decisions: int, key: Callable[[], str | None]) -> list[float]:
        """Return the CPU time of each decision, µs, in order of size."""
        costs = []
        for _ in range(decisions):
            self._end_one()
            costs.append(self._ask(key()))
        return sorted(costs)

    def waits_us(self, decisions: int) -> list[float]:
        """Return what it costs that a request comes to wait, and starts when one ends; sorted."""
        costs = []
        for _ in range(decisions):
            cost = self._ask(None)
            costs.append(cost + self._end_one())
        return sorted(costs)

    def _end_one(self) -> float:
        running = self._running
        index = int(self._random.random() * len(running))
        running[index], running[-1] = running[-1], running[index]
        ended = running.pop()
        start = time.thread_time()
        started = self._admission.release(ended, _ENDED, self._now)
        cost = time.thread_time() - start
        running += started  # type: ignore[arg-type]  # without deadlines nobody is refused
        return cost * 1e6

    def _ask(self, key: str | None) -> float:
        self._now += 0.001
        ticket = Ticket("model", ServiceClass.INTERACTIVE, self._now, affinity=key)
        start = time.thread_time()
        started = self._admission.request(ticket, self._now)
        cost = time.thread_time() - start
        self._running += started  # type: ignore[arg-type]
        return cost * 1e6


def cost_of_decisions(decisions: int) -> list[results.Result]:
    """What a decision costs."""
    world, rng, numbers = World(), random.Random(2), count()
    size = f"{_ENDPOINTS:,} endpoints x {_IN_FLIGHT:,} in flight"

    def known() -> str:
        return f"session-{rng.randrange(_KEYS)}"

    def fresh() -> str:
        return f"new-{next(numbers)}"

    found = []
    first = world.costs_us(300, fresh)
    world.costs_us(_WARM_UP, fresh)
    for name, key in (
        ("least in flight", lambda: None),
        (f"hrw, {_KEYS:,} keys", known),
        ("hrw, keys never seen before", fresh),
    ):
        costs = world.costs_us(decisions, key)
        p50, p99 = costs[len(costs) // 2], costs[len(costs) * 99 // 100]
        print(f"{name}: p50 {p50:.1f} µs, p99 {p99:.1f} µs", flush=True)
        measure = f"routing decision p99, {name}"
        against = f"CPU time; {size}; p50 {p50:.3g} µs"
        found.append(results.at_most(measure, p99, "µs", _GOAL_US, against=against))
    middle = first[len(first) // 2]
    found.append(
        results.noted(
            "hrw, first key of a bucket after a change of endpoints", middle, "µs", against=size
        )
    )
    full = World(in_flight=_IN_FLIGHT, ceiling=_IN_FLIGHT // _ENDPOINTS)
    waits = full.waits_us(300)
    found.append(
        results.noted(
            "all full, nobody waits: a request comes to wait, and starts when one ends",
            waits[len(waits) // 2],
            "µs",
            against=size,
        )
    )
    return found


def reshuffle(hosts: int, keys: int = 50_000) -> float:
    """Return the share of keys that change their endpoint when one is added."""
    core = _admission(hosts, random.Random(1))
    pool = core.states["model@host-0"].pool
    assert pool is not None
    names = [f"session-{number}" for number in range(keys)]
    before = {name: pool.rendezvous.order(name)[0] for name in names}
    core.add(_endpoint(hosts), 0.0)
    return sum(pool.rendezvous.order(name)[0] is not before[name] for name in names) / keys


def share_of_ideal(law: Callable[[Endpoint], Limit], seed: int) -> float:
    """Return what a backlog gets of two hosts, one of them 4x slower, over what each does alone."""
    hosts = [sim.endpoint("model", group=group, interactive=False) for group in ("fast", "slow")]

    def per_s(*used: Endpoint) -> float:
        slow = [(0.0, sim.changes.capacity("slow", 0.25))] if hosts[1] in used else []
        scenario = sim.Scenario(
            servers=dict.fromkeys(used, sim.EncoderSpec()),
            loads=[
                sim.Closed(model="model", workers=128, sizes=sim.lognormal(400, sigma=0.5, texts=8))
            ],
            changes=slow,
            scrape=sim.Scrape(),
            law=law,
        )
        return scenario.run(_SECONDS, seed=seed).select("model", since=_WARM_S).requests_per_s

    return per_s(*hosts) / sum(per_s(host) for host in hosts)


def main() -> None:
    """Measure everything and write the results."""
    parser = argparse.ArgumentParser(description="What routing costs, and how good it is.")
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    found = cost_of_decisions(arguments.decisions)
    for hosts in (4, 16, 64):
        moved = reshuffle(hosts) * 100
        print(f"{hosts} hosts and one more: {moved:.2f} % of the keys move", flush=True)
        found.append(
            results.at_most(
                f"hrw: keys that move when one host joins {hosts}",
                moved,
                "%",
                round(100 / (hosts + 1) + 1, 2),
                against="1/(n+1) + 1 %",
            )
        )
    laws: dict[str, Callable[[Endpoint], Limit]] = {
        "fixed": sim.fixed_limit,
        "knee": lambda endpoint: Knee(endpoint.floor, endpoint.ceiling),
    }
    for name, law in laws.items():
        share = min(share_of_ideal(law, seed) for seed in range(arguments.seeds)) * 100
        print(f"a host 4x slower, {name}: {share:.1f} % of ideal", flush=True)
        found.append(
            results.at_least(
                f"least in flight beside a host that is 4x slower, law {name}",
                share,
                "% of ideal",
                95,
                against=f"simulated, worst of {arguments.seeds} seeds; ideal: both hosts alone",
            )
        )
    if not arguments.dry:
        command = "make bench-routing (python -m bench.routing)"
        path = results.write("routing", command=command, results=found)
        report.update()
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
