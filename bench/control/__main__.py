"""Every law on every scenario, beside the oracle.

    python -m bench.control [--seeds 10] [--processes 2] [--only NAME …] [--dry]

Without `--dry` it writes `bench/results/control.json`, and the table and plots of
`docs/control-bench/`.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from math import isfinite
from statistics import median

from bench import results

from . import goals, laws, measure, report, spec

Runs = dict[str, dict[str, list[measure.Figures]]]  # by scenario and law, one for each seed


def task(name: str, seed: int, only: tuple[str, ...]) -> dict[str, measure.Figures]:
    """Run the laws on one scenario, with one seed."""
    scenario = spec.load(name)
    curves = measure.oracle(scenario, seed)
    return {
        law: measure.measure(scenario, measure.run(scenario, laws.make(law), seed), curves)
        for law in only
    }


def run_all(
    names: list[str], seeds: int, only: tuple[str, ...], processes: int, *, quiet: bool = False
) -> Runs:
    """Run everything, in several processes."""
    found: Runs = defaultdict(lambda: defaultdict(list))
    tasks = list(itertools.product(names, range(seeds)))
    with ProcessPoolExecutor(processes) as pool:
        done = pool.map(task, *zip(*tasks, strict=True), itertools.repeat(only))
        for number, ((name, seed), figures) in enumerate(zip(tasks, done, strict=True), 1):
            for law, figure in figures.items():
                found[name][law].append(figure)
            if not quiet:
                shares = " ".join(f"{law} {f.share:.2f}" for law, f in figures.items())
                print(f"{number}/{len(tasks)} {name} {seed}: {shares}", flush=True)
    return found


def _medians(figures: list[measure.Figures]) -> dict[str, float | None]:
    """Of each figure; None where it is infinite: it never happened."""
    rows = [asdict(one) for one in figures]
    found = {key: median(row[key] for row in rows) for key in rows[0]}
    return {key: value if isfinite(value) else None for key, value in found.items()}


def main() -> None:
    """Read the command line, run, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.control", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=spec.names(), default=spec.names())
    parser.add_argument("--laws", nargs="+", choices=laws.NAMES, default=laws.NAMES)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    runs = run_all(arguments.only, arguments.seeds, tuple(arguments.laws), arguments.processes)
    print(report.table(runs))
    if arguments.dry:
        return
    medians = {
        name: {law: _medians(figures) for law, figures in by_law.items()}
        for name, by_law in runs.items()
    }
    path = results.write(
        "control",
        command="make bench-control (python -m bench.control)",
        results=goals.judge(runs),
        details={"seeds": arguments.seeds, "medians": medians},
    )
    report.write(runs)
    print(f"wrote {path} and {report.FOLDER}")


if __name__ == "__main__":
    main()
