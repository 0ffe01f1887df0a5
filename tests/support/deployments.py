"""Small deployments for the tests of the core."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from forebay.core.build import build
from forebay.core.limits.fixed import Fixed
from forebay.core.model import (
    Ending,
    Endpoint,
    Outcome,
    Refusal,
    ServiceClass,
    Ticket,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.core.admission import Admission, Grant, Verdict

INTERACTIVE, BEST_EFFORT = ServiceClass.INTERACTIVE, ServiceClass.BEST_EFFORT
OK = Ending(Outcome.OK)


def endpoint(  # noqa: PLR0913 - what a test needs to name, by name
    model: str,
    *,
    group: str = "gpu",
    interactive: bool = True,
    floor: int = 1,
    ceiling: int = 32,
    slot_weight: int = 1,
    tokens_per_slot: int | None = None,
    host: str = "a",
    fallback_of: str | None = None,
    also_for: tuple[str, ...] = (),
) -> Endpoint:
    return Endpoint(
        id=f"{model}@{host}",
        model=model,
        base_url=f"http://{host}/v1",
        gpu_group=group,
        role="chat" if interactive else "embedding",
        service_class=INTERACTIVE if interactive else BEST_EFFORT,
        floor=floor,
        ceiling=ceiling,
        slot_weight=slot_weight,
        tokens_per_slot=tokens_per_slot,
        fallback_of=fallback_of,
        also_for=also_for,
    )


def admission(*endpoints: Endpoint, budgets: Mapping[str, int] | None = None, **more) -> Admission:
    more.setdefault("law", lambda e: Fixed(floor=e.floor, ceiling=e.ceiling))
    return build(endpoints, budgets or {}, rng=random.Random(0), **more)


class Desk:
    """Drives an admission at one instant and keeps who waits and who runs."""

    def __init__(self, core: Admission) -> None:
        self.core = core
        self.now = 0.0
        self.waiting: list[Ticket] = []
        self.running: list[Grant] = []
        self.refused: list[Refusal] = []

    def ask(self, model: str, service_class: ServiceClass | None = None, **more) -> Ticket:
        if service_class is None:
            service_class = next(
                s.endpoint.service_class
                for s in self.core.states.values()
                if s.endpoint.model == model
            )
        ticket = Ticket(model, service_class, self.now, **more)
        self.waiting.append(ticket)
        self.see(self.core.request(ticket, self.now))
        return ticket

    def ask_many(
        self, model: str, count: int, service_class: ServiceClass | None = None, **more
    ) -> list[Ticket]:
        return [self.ask(model, service_class, **more) for _ in range(count)]

    def finish(self, grant: Grant, ending: Ending = OK) -> None:
        self.running.remove(grant)
        self.see(self.core.release(grant, ending, self.now))

    def give_up(self, ticket: Ticket) -> None:
        self.waiting.remove(ticket)
        self.see(self.core.cancel(ticket, self.now))

    def see(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            self.waiting.remove(verdict.ticket)
            (self.refused if isinstance(verdict, Refusal) else self.running).append(verdict)
        for verdict in verdicts:
            if not isinstance(verdict, Refusal):
                self.never_over(verdict)

    @staticmethod
    def never_over(grant: Grant) -> None:
        """Nothing starts above a limit or a budget, wherever they were moved."""
        state, room = grant.member.state, grant.member.room
        assert state.inflight <= state.limit
        assert room.budget is None or room.inflight <= room.budget

    def of(self, model: str, service_class: ServiceClass | None = None) -> list[Grant]:
        return [
            g
            for g in self.running
            if g.ticket.model == model
            and (service_class is None or g.ticket.service_class is service_class)
        ]

    def counts(self, *models: str) -> tuple[int, ...]:
        """How many requests of each model run."""
        return tuple(len(self.of(model)) for model in models)

    def order_of_starts(self) -> list[Ticket]:
        """Let everything finish, oldest first, and return the tickets in the order they started."""
        started: dict[Ticket, None] = {}  # ordered
        while self.running:
            started |= dict.fromkeys(grant.ticket for grant in self.running)
            self.now += 1
            self.finish(self.running[0])
        return list(started)
