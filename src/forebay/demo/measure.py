"""The order of measuring: rounds of chat alone, the storm straight, the storm through Forebay.

The rounds are interleaved, so that whatever else this machine does falls on all three alike.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.demo.load import Phase, PhaseResult, Workload, run_phase
from forebay.demo.report import Measured, Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.demo.asking import Target

_SEED = 20


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long everything takes; as it stands, about 75 s in all.

    Args:
        rounds: how often the three phases follow each other.
        storm_s: measured time of each storm.
    """

    rounds: int = 3
    storm_s: float = 6.0

    @property
    def alone_s(self) -> float:
        """Measured time of chat alone, which asks much more often than it can in a storm."""
        return self.storm_s / 2

    @property
    def warm_up_s(self) -> float:
        """Time under load before anything of a phase counts."""
        return min(1.0, self.storm_s / 4)

    @property
    def phases(self) -> int:
        """How many phases there are."""
        return 3 * self.rounds


async def measure(
    direct: Target,
    governed: Target,
    workload: Workload,
    schedule: Schedule,
    on_phase: Callable[[str], None],
) -> Report:
    """Run all rounds.

    Args:
        direct: the engines.
        governed: the same engines behind Forebay.
        workload: who asks for what.
        schedule: for how long.
        on_phase: is told the name of each phase as it starts.

    Raises:
        LoadFailed: somebody got no answer at all.
    """
    rng = random.Random(_SEED)  # noqa: S311 - prompts, not secrets
    phases = {
        "chat alone": (Phase(direct, storm=False), schedule.alone_s),
        "the storm, straight at the engines": (Phase(direct, storm=True), schedule.storm_s),
        "the same storm, through Forebay": (
            Phase(governed, storm=True, bulk_service_tier="flex"),
            schedule.storm_s,
        ),
    }
    results: dict[str, list[PhaseResult]] = {name: [] for name in phases}
    for _ in range(schedule.rounds):
        for name, (phase, measure_s) in phases.items():
            on_phase(name)
            result = await run_phase(
                phase, workload, rng, warm_up_s=schedule.warm_up_s, measure_s=measure_s
            )
            results[name].append(result)
    alone, straight, through = (Measured.of(rounds) for rounds in results.values())
    return Report(alone, straight, through)
