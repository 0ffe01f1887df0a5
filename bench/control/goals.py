"""What the default law must reach, and whether it does."""

from __future__ import annotations

from math import inf, nan
from statistics import median
from typing import TYPE_CHECKING

from bench import results

from .laws import NAMES, NO_LIMIT, OURS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .measure import Figures

_AGAINST = "the best static limit of each phase"
# Where nothing is to be won by a limit, or nothing can be answered for a time.
_HOSTILE = ("refusals", "refusals-random", "timeouts")
_NO_QUEUE = ("embeddings",)  # a batching engine's queue is not a queue of requests
_BLIND = ("metrics-0", "metrics-5", "metrics-18", "metrics-none", "sigma-15", "sigma-15-generation")


def judge(runs: Mapping[str, Mapping[str, Sequence[Figures]]]) -> list[results.Result]:
    """Compare what was found with the goals."""
    ours = {name: by_law[OURS] for name, by_law in runs.items()}
    found = []
    for name, figures in ours.items():
        shares = [f.share for f in figures]
        found += [
            results.at_least(
                f"{name}: work per second", 100 * median(shares), "%", 92, against=_AGAINST
            ),
            results.at_least(
                f"{name}: work per second, worst seed",
                100 * min(shares),
                "%",
                85,
                against=_AGAINST,
            ),
        ]
        if name not in _NO_QUEUE:
            waiting = median(f.waiting for f in figures)
            found.append(
                results.at_most(
                    f"{name}: waiting inside the engine",
                    waiting,
                    "service times",
                    1,
                    against="simulated engine",
                )
            )
        if name not in {*_HOSTILE, "app-limited", "noise"}:
            cold_s = median(f.cold_s for f in figures)
            found.append(
                results.at_most(
                    f"{name}: from cold to within 10 %",
                    cold_s if cold_s < inf else nan,
                    "s",
                    30,
                    against=_AGAINST,
                )
            )
    if "capacity" in ours:
        recovery = median(f.recovery for f in ours["capacity"])
        found.append(
            results.at_most(
                "capacity: after a step to within 10 %",
                recovery if recovery < inf else nan,
                "pool turnovers",
                2,
                against=_AGAINST,
            )
        )
    if "noise" in ours:
        cuts = median(f.cuts_per_hour for f in ours["noise"])
        found.append(
            results.at_most("false cuts by noise alone", cuts, "an hour", 1, against="no knee")
        )
    found += _preemptions(runs)
    return found


def _preemptions(runs: Mapping[str, Mapping[str, Sequence[Figures]]]) -> list[results.Result]:
    """Beside the reference law that gets most done there, and beside no limit at all."""
    found = []
    for name, by_law in runs.items():
        if not name.startswith("metrics-") or set(by_law) != set(NAMES):
            continue
        ours = median(f.preemptions for f in by_law[OURS])
        references = set(by_law) - {OURS, NO_LIMIT}
        best = max(references, key=lambda law: median(f.share for f in by_law[law]))
        for law, whose in ((NO_LIMIT, "no limit"), (best, f"{best}, the best reference law there")):
            theirs = median(f.preemptions for f in by_law[law])
            done = median(f.share for f in by_law[law])
            against = f"5 % of {whose}: {theirs:g} (work {100 * done:.0f} %)"
            found.append(
                results.at_most(
                    f"{name}: preemptions", ours, "in a run", 0.05 * theirs, against=against
                )
            )
    return found
