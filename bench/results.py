"""What a benchmark found, as a file: `bench/results/<name>.json`, committed.

Each holds when it was measured, on what, by which command, and a list of results. A result states
its goal and whether it was met; a goal that is not met stays in the file as not met.
"""

from __future__ import annotations

import json
import math
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True)
class Result:
    """One figure.

    Args:
        measure: what was measured, in words.
        value: the figure; None when it could not be had.
        unit: its unit.
        goal: what it should be, e.g. ``≤ 7``; None for a figure without a goal.
        met: whether the goal is met; None without a goal.
        against: what it was measured against, or on.
        stretch: a further goal that does not count as missed.
    """

    measure: str
    value: float | None
    unit: str
    goal: str | None
    met: bool | None
    against: str
    stretch: str | None = None


def at_most(  # noqa: PLR0913  (the fields of one row)
    measure: str,
    value: float,
    unit: str,
    goal: float,
    *,
    against: str,
    stretch: float | None = None,
) -> Result:
    """Return the result of a measure that should not exceed its goal; NaN is "could not be had"."""
    shown = None if stretch is None else f"≤ {_number(stretch)}"
    known = None if math.isnan(value) else float(f"{value:.4g}")
    return Result(measure, known, unit, f"≤ {_number(goal)}", value <= goal, against, shown)


def at_least(measure: str, value: float, unit: str, goal: float, *, against: str) -> Result:
    """Return the result of a measure that should reach its goal; NaN is "could not be had"."""
    known = None if math.isnan(value) else float(f"{value:.4g}")
    return Result(measure, known, unit, f"≥ {_number(goal)}", value >= goal, against)


def noted(measure: str, value: float, unit: str, *, against: str) -> Result:
    """Return a figure that has no goal."""
    known = None if math.isnan(value) else float(f"{value:.4g}")
    return Result(measure, known, unit, None, None, against)


def write(
    name: str,
    *,
    command: str,
    results: Sequence[Result],
    versions: Mapping[str, str] | None = None,
    details: Mapping[str, Any] | None = None,
) -> Path:
    """Write one benchmark's file and return its path.

    Args:
        name: the benchmark's name, which is the file's.
        command: what to run to get these figures again.
        results: the figures.
        versions: of what took part besides Python.
        details: figures behind the results, for a report.
    """
    FOLDER.mkdir(exist_ok=True)
    content = {
        "name": name,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "on": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()}",
            "versions": dict(versions or {}),
        },
        "command": command,
        "results": [asdict(result) for result in results],
        "details": details or {},
    }
    path = FOLDER / f"{name}.json"
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def read_all() -> list[dict[str, Any]]:
    """Return every benchmark's file, by name."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]


def _number(value: float) -> str:
    return "?" if math.isnan(value) else f"{value:.3g}"


def _cpu_model() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123  (a stream, not a file)
        models = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    return ", ".join(sorted(models)) or platform.machine()
