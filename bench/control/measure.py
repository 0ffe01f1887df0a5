"""What one law did in one run of a scenario, beside the oracle."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, inf, log
from statistics import fmean
from typing import TYPE_CHECKING

from forebay.core.limits.fixed import Fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from forebay.core.limits.protocol import Limit
    from forebay.core.model import Endpoint
    from forebay.sim import Record

    from .spec import Spec

_STAYS_S = 30.0
_NEAR = 0.9
_BESIDE = (0.7, 0.84, 1.19, 1.41)  # times the best


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run.

    Args:
        share: work per second, as part of the oracle's.
        cold_s: time from the beginning until the limit is where a static one does 90 % of the
            oracle's work, and on average does so for 30 s; infinity if never.
        recovery: the longest such time after a later phase began, in pool turnovers: how long it
            takes to complete as many requests as the oracle keeps in flight.
        overshoot: the highest limit, as a multiple of the oracle's of that phase, after `from_s`.
        waiting: requests that wait inside the engine for each one that runs, on average: how many
            service times a request waits there.
        cuts_per_hour: moves of the limit downwards, an hour.
        preemptions: in the engine.
        floor_violations: see `forebay.sim.Record`.
    """

    share: float
    cold_s: float
    recovery: float
    overshoot: float
    waiting: float
    cuts_per_hour: float
    preemptions: int
    floor_violations: int


@dataclass(frozen=True, slots=True)
class Curve:
    """What static limits do in one phase.

    Args:
        limits: that were tried, ascending.
        work_per_s: of each.
        requests_per_s: of the best.
    """

    limits: tuple[int, ...]
    work_per_s: tuple[float, ...]
    requests_per_s: float

    @property
    def best(self) -> int:
        """The smallest limit that does 99 % of the most."""
        enough = 0.99 * max(self.work_per_s)
        return next(n for n, x in zip(self.limits, self.work_per_s, strict=True) if x >= enough)

    def share(self, limit: int) -> float:
        """The part of the most that a limit does, between those tried by interpolation."""
        after = bisect_right(self.limits, limit)
        if after == 0:
            return self.work_per_s[0] / max(self.work_per_s)
        if after == len(self.limits):
            return self.work_per_s[-1] / max(self.work_per_s)
        a, b = self.limits[after - 1], self.limits[after]
        part = log(limit / a) / log(b / a)
        x = exp((1 - part) * log(self.work_per_s[after - 1]) + part * log(self.work_per_s[after]))
        return x / max(self.work_per_s)


def oracle(spec: Spec, seed: int) -> list[Curve]:
    """Try static limits, and return what they do in each phase.

    First each is twice the last one; then those beside the best of each phase.
    """
    floor, ceiling = spec.governed.floor, spec.governed.ceiling
    records: dict[int, Record] = {}

    def attempt(limit: float) -> None:
        n = min(max(round(limit), floor), ceiling)
        if n not in records:
            records[n] = run(spec, lambda e: Fixed(e.floor, n), seed)

    limit = float(floor)
    while limit < ceiling:
        attempt(limit)
        limit *= 2
    attempt(ceiling)
    for curve in _curves(spec, records):
        for factor in _BESIDE:
            attempt(factor * curve.best)
    return _curves(spec, records)


def static(spec: Spec, seed: int, limits: Iterable[int]) -> list[Curve]:
    """Return what certain static limits do in each phase."""
    return _curves(spec, {n: run(spec, lambda e, n=n: Fixed(e.floor, n), seed) for n in limits})


def _curves(spec: Spec, records: Mapping[int, Record]) -> list[Curve]:
    curves = []
    limits = tuple(sorted(records))
    for since, until in spec.spans():
        found = [records[n].select(spec.governed.model, since=since, until=until) for n in limits]
        work = tuple(max(x.work_per_s, 1e-9) for x in found)
        best = max(range(len(work)), key=work.__getitem__)
        curves.append(Curve(limits, work, found[best].requests_per_s))
    return curves


def run(spec: Spec, law: Callable[[Endpoint], Limit], seed: int) -> Record:
    """Run a scenario with a law for the governed endpoint; others keep their ceiling."""

    def laws(endpoint: Endpoint) -> Limit:
        governed = endpoint == spec.governed
        return law(endpoint) if governed else Fixed(endpoint.floor, endpoint.ceiling)

    return replace(spec.scenario, law=laws).run(spec.seconds, seed=seed)


def measure(spec: Spec, record: Record, curves: list[Curve]) -> Figures:
    """Compare a run with what static limits do."""
    spans, endpoint = spec.spans(), spec.governed
    done = sum(
        record.select(endpoint.model, since=a, until=b).work_per_s * (b - a) for a, b in spans
    )
    best = sum(max(c.work_per_s) * (b - a) for c, (a, b) in zip(curves, spans, strict=True))
    samples = record.samples_of(endpoint.id, since=spec.from_s)
    moves = _moves(record, endpoint)
    texts = max((r.size.texts for r in record.requests[:1]), default=1)
    running = fmean(s.engine_running for s in samples)
    recoveries = [
        (_settled(moves, curve, since=start, until=end) - start)
        * max(curve.requests_per_s, 1e-9)
        / curve.best
        for curve, (start, end) in list(zip(curves, spans, strict=True))[1:]
    ]
    return Figures(
        share=done / best,
        cold_s=_settled(moves, curves[0], since=0.0, until=spans[0][1]),
        recovery=max(recoveries, default=0.0),
        overshoot=max(
            s.limit / curve.best
            for curve, (a, b) in zip(curves, spans, strict=True)
            for s in record.samples_of(endpoint.id, since=a, until=b)
        ),
        waiting=fmean(s.engine_waiting for s in samples) / texts / max(running, 1e-9),
        cuts_per_hour=_cuts(moves, spec.from_s) / (spec.seconds - spec.from_s) * 3600,
        preemptions=sum(record.preemptions.values()),
        floor_violations=record.floor_violations,
    )


def _moves(record: Record, endpoint: Endpoint) -> list[tuple[float, int]]:
    """The limit from each time on, beginning at the floor."""
    moves = [(m.at, m.limit) for m in record.limits if m.endpoint == endpoint.id]
    first = endpoint.floor if moves else record.samples_of(endpoint.id)[0].limit
    return [(0.0, first), *moves]


def _settled(moves: list[tuple[float, int]], curve: Curve, *, since: float, until: float) -> float:
    """When the limit gets good: then, and over the 30 s that follow, it does 90 % of the oracle."""
    steps = [(max(at, since), limit) for at, limit in moves if at < until]
    steps = [s for s, after in zip(steps, [*steps[1:], (until, 0)], strict=True) if s[0] < after[0]]
    shares = [(at, curve.share(limit)) for at, limit in steps]
    for n, (at, share) in enumerate(shares):
        if share >= _NEAR and _mean(shares[n:], min(at + _STAYS_S, until)) >= _NEAR:
            return at
    return inf


def _mean(shares: list[tuple[float, float]], until: float) -> float:
    """The mean over time, from the first of them to `until`."""
    ends = [min(at, until) for at, _ in shares[1:]] + [until]
    areas = (share * max(0.0, end - at) for (at, share), end in zip(shares, ends, strict=True))
    return sum(areas) / (until - shares[0][0])


def _cuts(moves: list[tuple[float, int]], since: float) -> int:
    return sum(after < before and at >= since for (_, before), (at, after) in pairwise(moves))
