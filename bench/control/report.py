"""The comparison as a page: a table, and a plot for each scenario."""

from __future__ import annotations

from math import isinf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from . import laws, measure, plot, spec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .measure import Figures

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "control-bench"
_PAGE = FOLDER / "index.md"
_BEGIN, _END = "<!-- generated: control -->", "<!-- end: control -->"


def table(runs: Mapping[str, Mapping[str, Sequence[Figures]]]) -> str:
    """Work per second as part of the oracle's, in percent: each law on each scenario."""
    names = [law for law in laws.NAMES if law in next(iter(runs.values()))]
    lines = [f"| scenario | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for name, by_law in runs.items():
        medians = {law: median(f.share for f in by_law[law]) for law in names}
        best = max(medians.values())
        cells = [
            f"**{100 * share:.0f}**" if share >= best - 0.005 else f"{100 * share:.0f}"
            for share in medians.values()
        ]
        lines.append(f"| [{name}](#{name}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def queues(runs: Mapping[str, Mapping[str, Sequence[Figures]]]) -> str:
    """What waits inside the engine, in service times: each law on each scenario."""
    names = [law for law in laws.NAMES if law in next(iter(runs.values()))]
    lines = [f"| scenario | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for name, by_law in runs.items():
        cells = [f"{median(f.waiting for f in by_law[law]):.1f}" for law in names]
        lines.append(f"| [{name}](#{name}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def details(runs: Mapping[str, Mapping[str, Sequence[Figures]]]) -> str:
    """Each scenario with its plot and the other figures."""
    parts = []
    for name, by_law in runs.items():
        lines = [
            f"### {name}",
            "",
            f"{spec.load(name).about}.",
            "",
            f"![limits in the scenario {name}]({name}.svg)",
            "",
            "| | work, worst seed | cold | recovery | waiting | lowered / h | preemptions |",
            "|---|---|---|---|---|---|---|",
        ]
        for law, figures in by_law.items():
            row = {key: median(getattr(f, key) for f in figures) for key in _KEYS}
            lines.append(
                f"| {law} | {100 * row['share']:.1f}, {100 * min(f.share for f in figures):.1f} % "
                f"| {_number(row['cold_s'], 's')} | {_number(row['recovery'], '×')} "
                f"| {row['waiting']:.2f} | {row['cuts_per_hour']:.0f} "
                f"| {row['preemptions']:.0f} |"
            )
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


_KEYS = ("share", "cold_s", "recovery", "waiting", "cuts_per_hour", "preemptions")


def write(runs: Mapping[str, Mapping[str, Sequence[Figures]]]) -> None:
    """Write the page's generated part and the plots."""
    FOLDER.mkdir(exist_ok=True)
    for name, by_law in runs.items():
        scenario = spec.load(name)
        records = {law: measure.run(scenario, laws.make(law), 0) for law in by_law}
        svg = plot.limits(scenario, records, measure.oracle(scenario, 0))
        (FOLDER / f"{name}.svg").write_text(svg, "utf-8")
    page = _PAGE.read_text("utf-8")
    before, rest = page.split(_BEGIN, 1)
    _, after = rest.split(_END, 1)
    body = "\n\n".join(
        (
            "## Work per second, percent of the oracle's",
            table(runs),
            "## Waiting inside the engine, service times",
            queues(runs),
            "## Scenarios",
            details(runs),
        )
    )
    _PAGE.write_text(f"{before}{_BEGIN}\n{body}\n{_END}{after}", "utf-8")


def _number(value: float, unit: str) -> str:
    return "never" if isinf(value) else f"{value:.1f} {unit}"
