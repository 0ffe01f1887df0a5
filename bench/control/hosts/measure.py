"""What a run did, beside the oracle.

The *oracle* of a phase is the sum of what each GPU that works in it does by itself, with a backlog
and the best static limit, found by trying.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING

from forebay import sim
from forebay.core.limits.fixed import Fixed
from forebay.core.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cases import Case, Servers

# Static limits that the oracle tries; beyond the last one nothing here does more.
LIMITS = (2, 4, 6, 8, 12, 16, 20, 24, 32, 40)
_TRIAL_S, _TRIAL_FROM_S = 120.0, 20.0
_FROM_S = 30.0  # work counts from here on
_NEAR, _PART_S, _PARTS = 0.9, 10, 3


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run.

    Args:
        share: work per second, as part of the oracle's.
        settled_s: the longest time after a phase began until the work is within 10 % of the
            oracle's, and is so in each third of the 30 s that follow; infinity if never.
        failed: requests that got no answer.
        waiting: requests that wait inside the engines for each one that runs, on average.
        jain: fairness index of the models' work in the last phase.
        jain_slots: the same of the slots that the endpoints hold.
        floor_violations: see `forebay.sim.Record`.
    """

    share: float
    settled_s: float
    failed: int
    waiting: float
    jain: float
    jain_slots: float
    floor_violations: int


def oracle(case: Case, seed: int, limits: Sequence[int] = LIMITS) -> list[float]:
    """The best work per second of each phase."""
    found: dict[tuple[tuple[str, sim.ServerSpec], ...], float] = {}

    def best(servers: Servers) -> float:
        key = tuple((endpoint.model, spec) for endpoint, spec in servers.items())
        if key not in found:  # another GPU with the same on it does the same
            found[key] = max(_trial(case, servers, limit, seed) for limit in limits)
        return found[key]

    return [sum(map(best, _by_gpu(servers))) for servers in case.phases.values()]


def _by_gpu(servers: Servers) -> list[Servers]:
    gpus: dict[str, Servers] = defaultdict(dict)
    for endpoint, spec in servers.items():
        gpus[endpoint.gpu_group][endpoint] = spec
    return list(gpus.values())


def _trial(case: Case, servers: Servers, limit: int, seed: int) -> float:
    """Work per second of one GPU alone, at a static limit of each of its endpoints."""
    models = {endpoint.model for endpoint in servers}
    alone = replace(
        case.scenario,
        servers=servers,
        loads=[replace(load, since_s=0.0) for load in case.scenario.loads if load.model in models],
        law=lambda endpoint: Fixed(endpoint.floor, limit),
        changes=(),
    )
    return alone.run(_TRIAL_S, seed=seed).select(since=_TRIAL_FROM_S).work_per_s


def measure(case: Case, record: sim.Record, best: Sequence[float]) -> Figures:
    """Compare a run with the oracle."""
    spans = case.spans()
    counted = [(max(since, _FROM_S), until) for since, until in spans]
    possible = sum(x * (b - a) for x, (a, b) in zip(best, counted, strict=True))
    work = record.work_over_time(every_s=1.0)
    samples = [s for s in record.samples if s.at >= _FROM_S]
    running = fmean(s.engine_running for s in samples)
    last_s, last = next(reversed(case.phases.items()))
    models = {endpoint.model for endpoint in last}
    held = [fmean(s.inflight for s in record.samples_of(e.id, since=last_s)) for e in last]
    return Figures(
        share=record.select(since=_FROM_S).work_per_s * (case.seconds - _FROM_S) / possible,
        settled_s=max(
            _settled(work[round(since) : round(until)], x)
            for x, (since, until) in zip(best, spans, strict=True)
        ),
        failed=sum(
            r.refused is not None or r.outcome not in (None, Outcome.OK) for r in record.requests
        ),
        waiting=fmean(s.engine_waiting for s in samples) / max(running, 1e-9),
        jain=sim.jain([record.select(model, since=last_s).work_per_s for model in models]),
        jain_slots=sim.jain(held),
        floor_violations=record.floor_violations,
    )


def _settled(work: Sequence[float], best: float) -> float:
    """The first second from which on each of the next parts is near the best."""
    for second in range(len(work) - _PARTS * _PART_S + 1):
        begins = range(second, second + _PARTS * _PART_S, _PART_S)
        if all(fmean(work[begin : begin + _PART_S]) >= _NEAR * best for begin in begins):
            return float(second)
    return inf
