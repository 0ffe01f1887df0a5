"""Jobs that remember what a server told them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.core.model import Outcome
from forebay.sim.gpu import Gpu
from forebay.sim.world import World

if TYPE_CHECKING:
    from forebay.sim.server import Server, ServerSpec, Size


@dataclass(eq=False)
class Note:
    """One request inside a server."""

    world: World
    size: Size
    first_token_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None

    def first_token(self) -> None:
        self.first_token_at = self.world.now

    def finished(self, outcome: Outcome = Outcome.OK, retry_after_s: float | None = None) -> None:
        del retry_after_s
        self.ended_at = self.world.now
        self.outcome = outcome


class Bench:
    """Servers alone on one GPU."""

    def __init__(self, *specs: ServerSpec) -> None:
        self.world = World(1)
        self.gpu = Gpu(self.world, self.world.rng("gpu"))
        self.servers: list[Server] = [spec.build(self.world, self.gpu) for spec in specs]

    def submit(self, size: Size, at: float = 0.0, *, server: int = 0) -> Note:
        note = Note(self.world, size)
        self.world.at(at, self.servers[server].submit, note)
        return note
