"""The admission benchmark: what one decision costs, however many wait.

A decision is one request and one release. All slots are taken and many tickets wait; then, over and
over, one that runs ends, whoever is next starts, and a new one asks in its place. It is CPU time,
not wall time, so that others' work does not count.

    python -m bench.admission
"""

from __future__ import annotations

import argparse
import random
import time
from statistics import median
from typing import TYPE_CHECKING

from forebay.core.build import build
from forebay.core.limits.fixed import Fixed
from forebay.core.model import Ending, Endpoint, Outcome, ServiceClass, Ticket
from forebay.core.queue import QueueBounds

from . import report, results

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from forebay.core.admission import Admission, Grant

WAITING = (100, 1_000, 10_000, 100_000)
_ENDPOINTS = 64
_SLOTS_EACH = 4
_CEILING = 8
_ENDED = Ending(Outcome.OK)


def _endpoint(number: int, model: str, group: str, *, chat: bool) -> Endpoint:
    return Endpoint(
        id=f"{model}@host-{number}",
        model=model,
        base_url=f"http://host-{number}/v1",
        gpu_group=group,
        role="chat" if chat else "embedding",
        service_class=ServiceClass.INTERACTIVE if chat else ServiceClass.BEST_EFFORT,
        floor=2,
        ceiling=_CEILING,
    )


def one_group() -> tuple[list[Endpoint], dict[str, int]]:
    """64 models, half of them chat, that share one budget."""
    made = [_endpoint(n, f"model-{n}", "gpu", chat=n % 2 == 0) for n in range(_ENDPOINTS)]
    return made, {"gpu": _ENDPOINTS * _SLOTS_EACH}


def pairs() -> tuple[list[Endpoint], dict[str, int]]:
    """32 GPUs with a chat and an embedding model each."""
    made = [_endpoint(n, f"model-{n}", f"gpu-{n // 2}", chat=n % 2 == 0) for n in range(_ENDPOINTS)]
    return made, {endpoint.gpu_group: 2 * _SLOTS_EACH for endpoint in made}


def replicas() -> tuple[list[Endpoint], dict[str, int]]:
    """One chat model on 64 GPUs of its own."""
    made = [_endpoint(n, "model", f"gpu-{n}", chat=True) for n in range(_ENDPOINTS)]
    return made, {endpoint.gpu_group: _SLOTS_EACH for endpoint in made}


SETUPS = {
    "64 endpoints in one group": one_group,
    "32 groups of two": pairs,
    "one model on 64 endpoints": replicas,
}


class World:
    """A deployment that is full, with a constant number of tickets waiting."""

    def __init__(self, setup: str, waiting: int) -> None:
        endpoints, budgets = SETUPS[setup]()
        self._random = random.Random(1)
        self._admission: Admission = build(
            endpoints,
            budgets,
            law=lambda endpoint: Fixed(endpoint.floor, endpoint.ceiling),
            rng=self._random,
            bounds=QueueBounds(max_requests=10**7, max_bytes=10**12),
        )
        self._classes = {endpoint.model: endpoint.service_class for endpoint in endpoints}
        self._running: list[Grant] = []
        self._now = 0.0
        models = [endpoint.model for endpoint in endpoints]
        asked = 0
        while asked - len(self._running) < waiting:
            self._ask(models[asked % len(models)])
            asked += 1

    def cost_us(self, decisions: int) -> float:
        """Return the mean CPU time of a decision, µs."""
        start = time.process_time()
        for _ in range(decisions):
            self._end_one()
        return (time.process_time() - start) / decisions * 1e6

    def _end_one(self) -> None:
        running = self._running
        index = int(self._random.random() * len(running))
        running[index], running[-1] = running[-1], running[index]
        ended = running.pop()
        self._now += 0.001
        started = self._admission.release(ended, _ENDED, self._now)
        running += started  # type: ignore[arg-type]  # without deadlines nobody is refused
        self._ask(started[0].ticket.model if started else ended.ticket.model)

    def _ask(self, model: str) -> None:
        self._now += 0.001
        ticket = Ticket(model, self._classes[model], asked_at=self._now)
        self._running += self._admission.request(ticket, self._now)  # type: ignore[arg-type]


def measure(setup: str, rounds: int, decisions: int) -> dict[int, list[float]]:
    """Return waiting → cost of a decision, µs, one a round; rounds are interleaved."""
    worlds = {waiting: World(setup, waiting) for waiting in WAITING}
    costs: dict[int, list[float]] = {waiting: [] for waiting in WAITING}
    for world in worlds.values():
        world.cost_us(decisions // 10)
    for _ in range(rounds):
        for waiting, world in worlds.items():
            costs[waiting].append(world.cost_us(decisions))
    return costs


def judge(setup: str, costs: dict[int, list[float]]) -> list[results.Result]:
    """Return the goals' results for one set-up."""
    few, many = WAITING[0], WAITING[-1]
    growth = median(b / a for a, b in zip(costs[few], costs[many], strict=True))
    return [
        results.at_most(
            f"request and release, 10,000 waiting, {setup}",
            median(costs[10_000]),
            "µs",
            12,
            against="CPU time of one decision",
        ),
        results.at_most(
            f"cost at 100,000 waiting, {setup}",
            growth,
            "times the cost at 100",
            1.3,
            against=f"{median(costs[few]):.3g} µs at 100 waiting",
        ),
    ]


def _show(setup: str, costs: Mapping[int, Sequence[float]]) -> None:
    shown = ", ".join(f"{waiting:,}: {median(values):.2f}" for waiting, values in costs.items())
    print(f"{setup}: µs a decision with so many waiting: {shown}", flush=True)


def main() -> None:
    """Measure every set-up and write the results."""
    parser = argparse.ArgumentParser(description="What one admission decision costs.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--decisions", type=int, default=20_000, help="a round, each")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    found: list[results.Result] = []
    for setup in SETUPS:
        costs = measure(setup, arguments.rounds, arguments.decisions)
        _show(setup, costs)
        found += judge(setup, costs)
    if not arguments.dry:
        command = "make bench-admission (python -m bench.admission)"
        path = results.write("admission", command=command, results=found)
        report.update()
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
