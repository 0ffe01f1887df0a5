"""The tables in `docs` and `README.md`, from `bench/results/*.json`.

python -m bench.report
"""

from __future__ import annotations

import re
from typing import Any

from . import results
from .proc import ROOT

_PAGES = (
    "performance",
    "simulator",
    "protection",
    "routing",
    "failover",
    "live",
    "control-bench/hosts",
)
PAGES = tuple(ROOT / "docs" / f"{page}.md" for page in _PAGES)
README = ROOT / "README.md"

_COLUMNS = {
    "small_cpu_us": "CPU µs / 1 kB request",
    "stream_cpu_s": "CPU s / 100k SSE chunks",
    "first_p99_ms": "first chunk late, p99 ms",
    "events_per_read": "chunks / read",
    "open_added_mb": "MB + / 1,000 streams",
    "open_late_max_ms": "longest stall ms",
    "large_mb_per_cpu_s": "MB / CPU s, 400 kB",
    "rate_p50_ms": "p50 ms, 200/s",
    "rate_p99_ms": "p99 ms, 200/s",
}


def update() -> None:
    """Write what the results say into the pages; a benchmark without results is left out."""
    for content in results.read_all():
        parts = [_measured(content), _goals(content["results"])]
        if content["name"] == "gateway":
            parts.insert(1, _gateways(content))
        if "levels" in content["details"]:
            parts.insert(1, _levels(content["details"]["levels"]))
        for page in PAGES:
            text = page.read_text(encoding="utf-8")
            page.write_text(_between(content["name"], "\n\n".join(parts), text), encoding="utf-8")
        if content["name"] == "demo":
            readme = README.read_text(encoding="utf-8")
            README.write_text(_between("demo", _demo(content), readme), encoding="utf-8")


def _levels(levels: dict[str, dict[str, dict[str, float]]]) -> str:
    """Real and simulated figures by the number of workers."""
    figures = list(next(iter(levels.values())))
    lines = [f"| workers | {' | '.join(figures)} |", "|---" * (len(figures) + 1) + "|"]
    for workers, row in levels.items():
        cells = [
            f"{cell['real']:.3g} → {cell['simulated']:.3g} ({cell['error_percent']:+.0f} %)"
            for cell in row.values()
        ]
        lines.append(f"| {workers} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _demo(content: dict[str, Any]) -> str:
    """The last run of the demo as a table."""
    run = content["details"]["runs"][-1]
    ways = [run[way] for way in ("alone", "direct", "governed")]
    lines = ["| p95 | chat alone | storm, straight | storm, through Forebay |", "|---|---|---|---|"]
    for key, name in (("first_token", "first token"), ("answer", "whole answer")):
        cells = [f"{way[key]['p95_s'] * 1000:.0f} ms" for way in ways]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for key, name in (("bulk_tokens_per_s", "bulk tokens / s"), ("embeddings_per_s", "texts / s")):
        cells = [f"{way[key]:.0f}" for way in ways[1:]]
        lines.append(f"| {name} | | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _measured(content)])


def _between(name: str, generated: str, text: str) -> str:
    start, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
    block = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    return block.sub(lambda _: f"{start}\n{generated}\n{end}", text)


def _measured(content: dict[str, Any]) -> str:
    machine = content["on"]
    return (
        f"Measured {content['when'][:10]} on {machine['cores']} cores of {machine['cpu']}, "
        f"Python {machine['python']}, by `{content['command']}`."
    )


def _goals(found: list[dict[str, Any]]) -> str:
    lines = ["| measure | value | goal | met |", "|---|---|---|---|"]
    for row in found:
        value = "not measured" if row["value"] is None else f"{row['value']:g} {row['unit']}"
        goal = row["goal"] or ""
        if row.get("stretch"):
            goal += f" (stretch {row['stretch']})"
        met = {True: "yes", False: "**no**", None: ""}[row["met"]]
        lines.append(f"| {row['measure']} | {value} | {goal} | {met} |")
    return "\n".join(lines)


def _gateways(content: dict[str, Any]) -> str:
    medians, versions = content["details"]["medians"], content["on"]["versions"]
    lines = [f"| | {' | '.join(_COLUMNS.values())} |", "|---" * (len(_COLUMNS) + 1) + "|"]
    for name, figures in medians.items():
        cells = ["-" if figures.get(key) is None else f"{figures[key]:g}" for key in _COLUMNS]
        label = f"{name} {versions[name]}" if name in versions else name
        lines.append(f"| {label} | {' | '.join(cells)} |")
    notes = [f"- {name}: {problem}" for name, problem in content["details"]["problems"].items()]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


if __name__ == "__main__":
    update()
