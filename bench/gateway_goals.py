"""What the gateway benchmark's figures have to be, and whether they are.

Ratios are taken within a round; the median over the rounds counts. NaN stands for a figure that
could not be had, and never meets a goal.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from .peers import SUBJECT
from .results import Result, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    # gateway → figure → one value a round
    Figures = Mapping[str, Mapping[str, Sequence[float]]]


def typical(values: Sequence[float]) -> float:
    """Return the median of the rounds in which the figure was had; NaN of none."""
    had = [value for value in values if not math.isnan(value)]
    return median(had) if had else float("nan")


class _Compare:
    """Forebay's figures, alone and beside a peer's of the same round."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def of(self, name: str, figure: str) -> Sequence[float]:
        return self._figures.get(name, {}).get(figure, ())

    def ours(self, figure: str) -> float:
        return typical(self.of(SUBJECT, figure))

    def ratio(self, figure: str, peer: str) -> float:
        pairs = zip(self.of(SUBJECT, figure), self.of(peer, figure), strict=False)
        return typical([ours / theirs for ours, theirs in pairs])

    def over_nginx(self, name: str, figure: str) -> float:
        pairs = zip(self.of(name, figure), self.of("nginx", figure), strict=False)
        return typical([value - base for value, base in pairs])


def judge(
    figures: Figures,
    versions: Mapping[str, str],
    problems: Mapping[str, str],
) -> list[Result]:
    """Return every goal of the gateway with the figure that answers it."""
    compare = _Compare(figures)

    def peer(name: str) -> str:
        if name in problems:
            return f"{name}: {problems[name]}"
        return f"{name} {versions.get(name, '(not run)')}"

    def ratio(measure: str, figure: str, name: str, goal: float, **more: float) -> Result:
        value = compare.ratio(figure, name)
        return at_most(measure, value, f"times {name}", goal, against=peer(name), **more)

    small, stream = "CPU per 1 kB request, 16 connections", "CPU per SSE chunk, 200 streams"
    latest = max(compare.of(SUBJECT, "open_late_max_ms"), default=float("nan"))
    found = [
        ratio(small, "small_cpu_us", "nginx", 7, stretch=4),
        ratio(small, "small_cpu_us", "smg", 0.9),
        ratio(small, "small_cpu_us", "litellm", 1 / 60),
        ratio(stream, "stream_cpu_s", "nginx", 2, stretch=1.4),
        ratio(stream, "stream_cpu_s", "smg", 1.2),
        at_most(
            "first chunk late, p99, 200 streams",
            compare.ours("first_p99_ms"),
            "ms",
            5,
            against="the time at which the backend wrote it",
        ),
        at_most(
            "chunks that arrive joined to another, 200 streams",
            (compare.ours("events_per_read") - 1) * 100,
            "%",
            1,
            against="one read per chunk",
        ),
        at_most(
            "memory added by 1,000 open streams",
            compare.ours("open_added_mb"),
            "MB",
            40,
            against="the process before the first one",
            stretch=25,
        ),
        at_most(
            "longest stall of 1,000 open streams, of all rounds",
            latest,
            "ms",
            250,
            against="the time at which the backend wrote the chunk",
        ),
        at_least(
            "bytes per CPU second, 400 kB responses",
            compare.ratio("large_mb_per_cpu_s", "uvicorn+aiohttp"),
            "times uvicorn+aiohttp",
            1.5,
            against=peer("uvicorn+aiohttp"),
        ),
    ]
    for share in ("p50", "p99"):
        figure = f"rate_{share}_ms"
        found.append(
            at_most(
                f"latency added over nginx, {share}, 200 requests/s",
                compare.over_nginx(SUBJECT, figure),
                "ms",
                compare.over_nginx("smg", figure),
                against=f"what {peer('smg')} adds",
            )
        )
    return found


def details(figures: Figures, problems: Mapping[str, str]) -> dict[str, Any]:
    """Return every gateway's medians, and what could not be measured, for the results file."""
    medians = {
        name: {
            figure: None if math.isnan(value := typical(values)) else float(f"{value:.4g}")
            for figure, values in of_one.items()
        }
        for name, of_one in figures.items()
    }
    rounds = max((len(v) for of_one in figures.values() for v in of_one.values()), default=0)
    return {"rounds": rounds, "medians": medians, "problems": dict(problems)}
