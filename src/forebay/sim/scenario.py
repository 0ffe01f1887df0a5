"""A scenario: endpoints with the servers behind them, budgets, loads, a law, and what changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from forebay.core.admission import Admission
from forebay.core.build import build
from forebay.core.limits.fixed import Fixed
from forebay.core.model import Endpoint, ServiceClass
from forebay.core.observer import Observer
from forebay.core.queue import QueueBounds
from forebay.sim.simulation import Simulation

if TYPE_CHECKING:
    from forebay.core.limits.protocol import Limit
    from forebay.core.protection import ProtectionSettings
    from forebay.sim.loads import Load
    from forebay.sim.record import Record
    from forebay.sim.server import ServerSpec

# Makes the admission of a run, from a random stream for jitter and who hears of changes.
AdmissionMaker = Callable[[Random, Observer], Admission]
# Something that happens to the world: see `forebay.sim.changes`.
Change = Callable[[Simulation], None]


@dataclass(frozen=True, slots=True)
class Scrape:
    """How an engine's metrics are read.

    Args:
        every_s: time between two readings; what was read may be so old.
        lag_s: what the gauges show is so old already when they are read, and does not say so.
    """

    every_s: float = 5.0
    lag_s: float = 0.0


def fixed_limit(endpoint: Endpoint) -> Limit:
    """The law that keeps the limit at the ceiling; with the best ceiling, it is the oracle."""
    return Fixed(endpoint.floor, endpoint.ceiling)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All that a run is made of, besides its seed.

    Args:
        servers: what is behind each endpoint. Endpoints of one `gpu_group` share one GPU.
        loads: who asks.
        law: makes the limit of an endpoint; any `core.limits.protocol.Limit`.
        budgets: slots by GPU group; a group without one binds nobody.
        bounds: of every queue.
        protection: of chat from best-effort work on its GPU; None: there is none.
        scrape: how engines' metrics are read; None: they have none.
        changes: what happens when, seconds.
        admission: makes the admission instead of `law`, `budgets`, `bounds` and `protection`, e.g.
            from a configuration: ``partial(admission_of, plan)``.
    """

    servers: Mapping[Endpoint, ServerSpec]
    loads: Sequence[Load]
    law: Callable[[Endpoint], Limit] = fixed_limit
    budgets: Mapping[str, int] = field(default_factory=dict)
    bounds: QueueBounds = field(default_factory=QueueBounds)
    protection: ProtectionSettings | None = None
    scrape: Scrape | None = None
    changes: Sequence[tuple[float, Change]] = ()
    admission: AdmissionMaker | None = None

    def run(self, seconds: float, *, seed: int = 0) -> Record:
        """Run it from the beginning."""
        return self.simulation(seed).run(seconds)

    def simulation(self, seed: int = 0) -> Simulation:
        """Set it up, to be run in parts or looked into."""
        simulation = Simulation(
            self.servers, self.admission or self._admission, scrape=self.scrape, seed=seed
        )
        for at, change in self.changes:
            simulation.world.at(at, change, simulation)
        for number, load in enumerate(self.loads):
            load.begin(simulation, simulation.world.rng(f"load {number}"))
        return simulation

    def _admission(self, rng: Random, observer: Observer) -> Admission:
        return build(
            self.servers,
            self.budgets,
            law=self.law,
            rng=rng,
            bounds=self.bounds,
            protection=self.protection,
            observer=observer,
        )


def endpoint(  # noqa: PLR0913 - what a scenario may say of it, by name
    model: str,
    *,
    group: str = "gpu",
    interactive: bool = True,
    floor: int = 1,
    ceiling: int = 32,
    slot_weight: int = 1,
) -> Endpoint:
    """An endpoint with the id ``model@group``: a chat model, or a best-effort embedding model."""
    return Endpoint(
        id=f"{model}@{group}",
        model=model,
        base_url=f"http://{group}/{model}/v1",
        gpu_group=group,
        role="chat" if interactive else "embedding",
        service_class=ServiceClass.INTERACTIVE if interactive else ServiceClass.BEST_EFFORT,
        floor=floor,
        ceiling=ceiling,
        slot_weight=slot_weight,
    )
