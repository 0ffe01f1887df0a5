"""Run every scenario, beside the oracle.

    python -m bench.control.hosts [--seeds 10] [--processes 2] [--dry]

Without `--dry` it writes `bench/results/hosts.json`, and the table and plots of
`docs/control-bench/hosts.md`.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import repeat
from math import isfinite, nan
from statistics import median
from typing import TYPE_CHECKING

from bench import report, results
from bench.control.report import FOLDER

from .cases import cases
from .measure import measure, oracle
from .plot import draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cases import Case
    from .measure import Figures

_AGAINST = "the best static limit of each GPU that works, added up"
_ON = "simulated, worst of the seeds"


def task(number: int, seed: int) -> Figures:
    """Run one scenario with one seed."""
    case = cases()[number]
    return measure(case, case.scenario.run(case.seconds, seed=seed), oracle(case, seed))


def judge(case: Case, figures: Sequence[Figures]) -> list[results.Result]:
    """Compare what was found, with many seeds, with the goals."""
    name, shares = case.name, [100 * f.share for f in figures]
    failed = max(f.failed for f in figures)
    violations = max(f.floor_violations for f in figures)
    settled_s = median(f.settled_s for f in figures)
    found = [
        results.at_least(f"{name}: work per second", median(shares), "%", 92, against=_AGAINST),
        results.at_least(
            f"{name}: work per second, worst seed", min(shares), "%", 85, against=_AGAINST
        ),
        results.at_most(
            f"{name}: from each change to within 10 %, for 30 s",
            settled_s if isfinite(settled_s) else nan,
            "s",
            case.settles_s,
            against=_AGAINST,
        ),
        results.at_most(f"{name}: requests that fail", failed, "", 0, against=_ON),
        results.at_most(f"{name}: floor violations", violations, "", 0, against=_ON),
    ]
    if case.peers:
        work, slots = min(f.jain for f in figures), min(f.jain_slots for f in figures)
        found += [
            results.at_least(f"{name}: Jain index of work", work, "", 0.95, against=_ON),
            results.noted(f"{name}: Jain index of slots held", slots, "", against=_ON),
        ]
    else:
        waiting = median(f.waiting for f in figures)
        found.append(
            results.at_most(
                f"{name}: waiting inside the engines",
                waiting,
                "service times",
                1,
                against="simulated engines",
            )
        )
    return found


def main() -> None:
    """Read the command line, run, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.control.hosts", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    rows: list[results.Result] = []
    details = {}
    with ProcessPoolExecutor(arguments.processes) as pool:
        for number, case in enumerate(cases()):
            figures = list(pool.map(task, repeat(number), range(arguments.seeds)))
            rows += judge(case, figures)
            details[case.name] = {"about": case.about, "seeds": [asdict(f) for f in figures]}
            for figure in figures:
                print(case.name, figure, flush=True)
    if arguments.dry:
        return
    command = "make bench-hosts (python -m bench.control.hosts)"
    path = results.write("hosts", command=command, results=rows, details=details)
    for case in cases():
        record = case.scenario.run(case.seconds, seed=0)
        svg = draw(case, record, oracle(case, 0))
        (FOLDER / f"{case.name}.svg").write_text(svg, "utf-8")
    report.update()
    print(f"wrote {path}, and the table and plots in {FOLDER}")


if __name__ == "__main__":
    main()
