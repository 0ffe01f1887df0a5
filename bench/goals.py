"""Print every benchmark's figures in one table, what falls short first.

It reads `bench/results/*.json` and nothing else.

    python -m bench.goals
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from . import results

# In this order: not met, met, without a goal.
_VERDICTS = {False: "[red]not met[/]", True: "[green]met[/]", None: ""}
_ORDER = list(_VERDICTS)


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
    table = Table(title="Goals", title_justify="left")
    for column in ("", "benchmark", "measure"):
        table.add_column(column)
    table.add_column("value", justify="right")
    for column in ("unit", "goal", "against", "measured"):
        table.add_column(column)
    found = rows()
    for name, when, result in found:
        value = "not measured" if result["value"] is None else f"{result['value']:g}"
        goal = result["goal"] or ""
        if result.get("stretch"):
            goal += f" (stretch {result['stretch']})"
        table.add_row(
            *(_VERDICTS[result["met"]], name, result["measure"], value, result["unit"], goal),
            *(result["against"], when[:10]),
        )
    console = Console()
    console.print(table)
    missed = sum(result["met"] is False for _, _, result in found)
    reached = sum(result["met"] is True for _, _, result in found)
    console.print(
        f"{reached} met, {missed} not met, {len(found) - reached - missed} without a goal"
    )


if __name__ == "__main__":
    main()
