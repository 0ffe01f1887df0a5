"""The demo's comparison on real engines, several runs, recorded with its goals.

python -m bench.demo [--runs 3]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from forebay.demo.measure import Schedule
from forebay.demo.run import run_demo

from . import report, results

if TYPE_CHECKING:
    from forebay.demo.report import Report

_ON = "llama.cpp chat and MiniLM, one machine; median of the runs"


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    reports: list[Report] = []
    console = Console(stderr=True)
    for n in range(runs):
        print(f"run {n + 1} of {runs}", file=sys.stderr)
        run_demo(Schedule(), console, reports.append)
        console.print(reports[-1].sentence)
    direct = [r.slowdown(r.direct) for r in reports]
    governed = [r.slowdown(r.governed) for r in reports]
    left = [(g - 1) / (d - 1) for d, g in zip(direct, governed, strict=True)]
    median = statistics.median
    path = results.write(
        "demo",
        command="make bench-demo",
        results=[
            results.at_most(
                "what is left of chat's inflation (p95 / p95 alone - 1)",
                median(left),
                "×",
                0.125,
                against=_ON,
            ),
            results.at_least(
                "bulk tokens through Forebay / ungoverned",
                median(r.bulk_kept for r in reports),
                "×",
                0.5,
                against=_ON,
            ),
            results.at_least(
                "embeddings through Forebay / ungoverned",
                median(r.embeddings_kept for r in reports),
                "×",
                0.85,
                against=_ON,
            ),
            results.noted(
                "chat's answer p95 under the storm, ungoverned / alone",
                median(direct),
                "×",
                against=_ON,
            ),
            results.noted(
                "chat's answer p95 under the storm, through Forebay / alone",
                median(governed),
                "×",
                against=_ON,
            ),
        ],
        details={"runs": [r.as_dict() for r in reports]},
    )
    report.update()
    print(path.read_text("utf-8"))


if __name__ == "__main__":
    main()
