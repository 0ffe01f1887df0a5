"""One run as SVG: work per second beside what is possible, and each endpoint's limit."""

from __future__ import annotations

from itertools import pairwise
from math import log2
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from forebay.sim import Record, Sample

    from .cases import Case

_WIDTH, _HEIGHT, _LEFT, _KEY = 760, 390, 58, 130
_WORK, _LIMITS = (24, 170), (214, 356)  # top and bottom of each half
_COLOURS = ("#d62728", "#2ca02c", "#9467bd")
_TOTAL, _GOOD = "#0b62a4", "#e3efdc"
_MEAN_S, _NEAR = 5, 0.9
_TICKS = (1, 4, 16, 64)


class _Plot:
    """The parts of a picture of one run."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">',
            "<style>text { font: 11px sans-serif }</style>",
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        ]

    def x(self, seconds: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _KEY) * seconds / self._case.seconds

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.4) -> None:
        joined = " ".join(f"{self.x(at):.1f},{y:.1f}" for at, y in points)
        self.parts.append(
            f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
        )

    def text(self, x: float, y: float, text: str, *, anchor: str, colour: str = "#000") -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
        )

    def tick(self, y: float, text: str) -> None:
        self.parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _KEY}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        self.text(_LEFT - 6, y + 4, text, anchor="end")


def draw(case: Case, record: Record, best: Sequence[float]) -> str:
    """Draw a run; the band is from 90 % to all of the oracle's work in each phase."""
    plot = _Plot(case)
    _draw_work(plot, case, record, best)
    _draw_limits(plot, case, record)
    for since, _ in case.spans()[1:]:
        plot.parts.append(
            f'<line x1="{plot.x(since):.1f}" x2="{plot.x(since):.1f}" y1="{_WORK[0]}" '
            f'y2="{_LIMITS[1]}" stroke="#999" stroke-dasharray="3 3"/>'
        )
    for part in range(5):
        at = case.seconds * part / 4
        plot.text(plot.x(at), _HEIGHT - 10, f"{at:.0f} s", anchor="middle")
    return "\n".join([*plot.parts, "</svg>", ""])


def _draw_work(plot: _Plot, case: Case, record: Record, best: Sequence[float]) -> None:
    top, bottom = _WORK
    most = 1.15 * max(best)

    def y(work: float) -> float:
        return bottom - (bottom - top) * min(work / most, 1.0)

    for possible, (since, until) in zip(best, case.spans(), strict=True):
        plot.parts.append(
            f'<rect x="{plot.x(since):.1f}" y="{y(possible):.1f}" '
            f'width="{plot.x(until) - plot.x(since):.1f}" '
            f'height="{y(_NEAR * possible) - y(possible):.1f}" fill="{_GOOD}"/>'
        )
    for part in range(3):
        plot.tick(y(max(best) * part / 2), f"{max(best) * part / 2:.0f}")
    models = sorted({request.model for request in record.requests})
    if case.peers:
        for model, colour in zip(models, _COLOURS, strict=False):
            plot.line([(at, y(work)) for at, work in _work(record, model)], colour)
    plot.line([(at, y(work)) for at, work in _work(record, None)], _TOTAL, 2.2)
    plot.text(_LEFT, top - 10, "work per second (tokens)", anchor="start")
    plot.text(_WIDTH - _KEY + 8, top + 4, "all together", anchor="start", colour=_TOTAL)


def _draw_limits(plot: _Plot, case: Case, record: Record) -> None:
    top, bottom = _LIMITS

    def y(limit: float) -> float:
        return bottom - (bottom - top) * min(log2(limit) / log2(_TICKS[-1]), 1.0)

    for tick in _TICKS:
        plot.tick(y(tick), str(tick))
    endpoints = {e.id: None for servers in case.phases.values() for e in servers}
    for number, (endpoint, colour) in enumerate(zip(endpoints, _COLOURS, strict=False)):
        for run in _unbroken(record.samples_of(endpoint)):
            plot.line([(sample.at, y(sample.limit)) for sample in run], colour)
        key_y = top + 4 + 16 * number
        plot.text(_WIDTH - _KEY + 8, key_y, endpoint, anchor="start", colour=colour)
    plot.text(_LEFT, top - 10, "limits", anchor="start")


def _work(record: Record, model: str | None) -> list[tuple[float, float]]:
    """Work per second in each span of some seconds, at its middle."""
    spans = record.work_over_time(model, every_s=_MEAN_S)
    return [((number + 0.5) * _MEAN_S, work) for number, work in enumerate(spans)]


def _unbroken(samples: Sequence[Sample]) -> Iterator[list[Sample]]:
    """The samples of an endpoint, in a new list after each time that it was not there."""
    run: list[Sample] = list(samples[:1])
    for before, after in pairwise(samples):
        if after.at - before.at > 1.5:
            yield run
            run = []
        run.append(after)
    yield run
