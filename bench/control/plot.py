"""Limits over time as SVG: a line for each law, a band where the oracle does its work."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.sim import Record

    from .measure import Curve
    from .spec import Spec

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _KEY = 760, 300, 46, 28, 130
_COLOURS = ("#0b62a4", "#8c564b", "#2ca02c", "#9467bd", "#ff7f0e", "#d62728", "#7f7f7f")
_MOST_POINTS = 400
_GOOD = 0.92


def limits(spec: Spec, records: Mapping[str, Record], curves: list[Curve]) -> str:
    """Draw the limits of several laws on one scenario."""
    since = max(0.0, spec.from_s - 60.0) if spec.from_s > 60 else 0.0
    top = max(spec.governed.ceiling, 2)

    def x(seconds: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _KEY) * (seconds - since) / (spec.seconds - since)

    def y(limit: float) -> float:
        return 10 + (_HEIGHT - 10 - _BOTTOM) * (1 - log(max(limit, 1)) / log(top))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">',
        "<style>text { font: 11px sans-serif }</style>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
    ]
    for curve, (a, b) in zip(curves, spec.spans(), strict=True):
        good = [limit for limit in curve.limits if curve.share(limit) >= _GOOD]
        parts.append(
            f'<rect x="{x(max(a, since)):.1f}" y="{y(max(good)):.1f}" width="{x(b) - x(a):.1f}" '
            f'height="{max(2.0, y(min(good)) - y(max(good))):.1f}" fill="#e3efdc"/>'
        )
    tick = 1
    while tick <= top:
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _KEY}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" '
            f'stroke="#ddd"/><text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" '
            f'text-anchor="end">{tick}</text>'
        )
        tick *= 4
    for part in range(5):
        at = since + (spec.seconds - since) * part / 4
        parts.append(
            f'<text x="{x(at):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{at:.0f} s</text>'
        )
    named = list(zip(records.items(), _COLOURS, strict=False))
    for number, ((law, record), colour) in reversed(list(enumerate(named))):
        samples = record.samples_of(spec.governed.id, since=since)
        samples = samples[:: max(1, len(samples) // _MOST_POINTS)]
        points = " ".join(f"{x(s.at):.1f},{y(s.limit):.1f}" for s in samples)
        width = 2.2 if number == 0 else 1.1
        key_y = 24 + 16 * number
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'opacity="{1 if number == 0 else 0.7}"/>'
            f'<text x="{_WIDTH - _KEY + 8}" y="{key_y}" fill="{colour}">{law}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
