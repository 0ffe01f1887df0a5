"""Print every benchmark's figures in one table, what falls short first.

It reads `bench/results/*.json` and nothing else.

    python -m bench.goals
"""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from . import results

# In this order: not met, met, without a goal.
_VERDICTS = {False: "[red]not met[/]", True: "[green]met[/]", None: ""}
_ORDER = list(_VERDICTS)
_FILE_WIDTH = 180


def rows() -> list[tuple[str, str, dict[str, Any]]]:
    """Return (benchmark, when, result), what falls short first."""
    found = [
        (content["name"], content["when"], result)
        for content in results.read_all()
        for result in content["results"]
    ]
    return sorted(found, key=lambda row: _ORDER.index(row[2]["met"]))


def main() -> None:
    """Print the table."""
    found = rows()
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("", "benchmark", "measure", "value", "goal", "against"):
        table.add_column(column)
    for name, _, result in found:
        value = "not measured"
        if result["value"] is not None:
            value = f"{result['value']:g} {result['unit']}"
        goal = result["goal"] or ""
        if result.get("stretch"):
            goal += f" (stretch {result['stretch']})"
        verdict = _VERDICTS[result["met"]]
        table.add_row(verdict, name, result["measure"], value, goal, result["against"])
    console = Console()
    if not console.is_terminal:  # a file, a pager, a CI log
        console.width = _FILE_WIDTH
    console.print(table)
    missed = sum(result["met"] is False for _, _, result in found)
    reached = sum(result["met"] is True for _, _, result in found)
    console.print(
        f"{reached} met, {missed} not met, {len(found) - reached - missed} without a goal"
    )
    for name, when in sorted({(name, when) for name, when, _ in found}):
        console.print(f"{name}: measured {when}", highlight=False)


if __name__ == "__main__":
    main()
