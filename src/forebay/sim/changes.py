"""What may happen to a simulated world while it runs: entries of `Scenario.changes`.

Each is a function of the simulation, to stand beside the time at which it happens:
``changes=[(60.0, capacity("gpu", 0.5)), (120.0, capacity("gpu", 1.0))]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.sim.queues import Fifo

if TYPE_CHECKING:
    from forebay.core.model import Endpoint
    from forebay.sim.scenario import Change
    from forebay.sim.server import ServerSpec
    from forebay.sim.simulation import Simulation


def capacity(group: str, factor: float) -> Change:
    """A GPU computes at `factor` times its first speed."""

    def change(simulation: Simulation) -> None:
        simulation.gpus[group].capacity = factor

    return change


def drift(group: str, per_min: float) -> Change:
    """Everything on a GPU gets slower by that part of itself each minute, from now on."""

    def change(simulation: Simulation) -> None:
        simulation.gpus[group].drift(per_min)

    return change


def noise(group: str, sigma: float) -> Change:
    """Each piece of work on a GPU takes a lognormal factor of its time, with mean 1."""

    def change(simulation: Simulation) -> None:
        simulation.gpus[group].noise = sigma

    return change


def co_tenant(group: str, *, load: float = 1.0, share: float = 1.0, seconds: float) -> Change:
    """Somebody else computes on a GPU for some time, unknown to the core."""

    def change(simulation: Simulation) -> None:
        gpu = simulation.gpus[group]
        simulation.world.after(seconds, gpu.stop, gpu.occupy(load, share))

    return change


def servers(endpoint_id: str, count: int) -> Change:
    """A `Fifo` serves another number of requests at once."""

    def change(simulation: Simulation) -> None:
        server = simulation.doors[endpoint_id].server
        if not isinstance(server, Fifo):
            raise TypeError(f"{endpoint_id} is no Fifo: it has no number of servers to change")
        server.servers = count

    return change


def bounds(endpoint_id: str, *, floor: int, ceiling: int) -> Change:
    """An operator moves an endpoint's floor and ceiling; with a fixed limit, that is the limit."""

    def change(simulation: Simulation) -> None:
        simulation.limiter.set_bounds(endpoint_id, floor, ceiling)

    return change


def budget(group: str, slots: int) -> Change:
    """An operator moves a GPU's budget."""

    def change(simulation: Simulation) -> None:
        simulation.limiter.set_budget(group, slots)

    return change


def add(endpoint: Endpoint, server: ServerSpec) -> Change:
    """An operator adds an endpoint; one that drains serves again, with the server that it has."""

    def change(simulation: Simulation) -> None:
        simulation.add(endpoint, server)

    return change


def drain(endpoint_id: str) -> Change:
    """An operator drains an endpoint: what runs there goes on, and nothing more starts."""

    def change(simulation: Simulation) -> None:
        simulation.limiter.drain(endpoint_id)

    return change


def remove(endpoint_id: str) -> Change:
    """An operator takes an endpoint out: it drains, and goes when nothing runs there any more."""

    def change(simulation: Simulation) -> None:
        simulation.remove(endpoint_id)

    return change


def refuse(
    endpoint_id: str,
    *,
    above: int | None = None,
    part: float = 0.0,
    retry_after_s: float | None = None,
) -> Change:
    """An endpoint refuses for load (429).

    Args:
        endpoint_id: whose door.
        above: requests inside from which on it refuses.
        part: the part of all requests that it refuses, whatever is inside.
        retry_after_s: when it says to come back, if it does.
    """

    def change(simulation: Simulation) -> None:
        door = simulation.doors[endpoint_id]
        door.most, door.refuses, door.retry_after_s = above, part, retry_after_s

    return change


def hang(endpoint_id: str) -> Change:
    """An endpoint reads requests and never answers: only time-outs end them."""

    def change(simulation: Simulation) -> None:
        simulation.doors[endpoint_id].hangs = True

    return change


def fail(endpoint_id: str) -> Change:
    """An endpoint breaks, with all that is in it; `recover` mends it."""

    def change(simulation: Simulation) -> None:
        simulation.doors[endpoint_id].fail()

    return change


def recover(endpoint_id: str) -> Change:
    """An endpoint is well again: nothing refuses, hangs or fails there."""

    def change(simulation: Simulation) -> None:
        simulation.doors[endpoint_id].recover()

    return change
