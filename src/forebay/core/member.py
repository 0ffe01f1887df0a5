"""A member of a room: one endpoint in one service class, and what its endpoint's limit admits (R1).

The class that the endpoint's role gives it is *native* and owns the floor. A request that lowers or
raises itself comes in as a *visitor*, a member of its own with floor 0: it shares the endpoint's
limit, but not the reserve. The two members of one endpoint are siblings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.core.grant import Grant
from forebay.core.model import ServiceClass

if TYPE_CHECKING:
    from forebay.core.endpoint import EndpointState
    from forebay.core.model import Ticket
    from forebay.core.queue import Queue
    from forebay.core.room import Room

# A member, the request that it would start next, and the slots that this takes.
Start = tuple["Member", "Ticket", int]


@dataclass(slots=True, eq=False, repr=False)
class Member:
    """One endpoint in one service class, inside a room.

    Args:
        index: unique in the room.
        state: the endpoint.
        queue: what waits for it, and for other endpoints of the same model.
        room: where it shares a budget.
        service_class: the class of the requests that it starts.
        floor: slots that it can always reach; 0 for a visitor.
        priority: its floor is reserved even while nothing asks for it.
    """

    index: int
    state: EndpointState
    queue: Queue
    room: Room
    service_class: ServiceClass
    floor: int
    priority: bool
    sibling: Member = field(init=False)
    interactive: bool = field(init=False)
    inflight: int = field(default=0, init=False)
    # The room's accounts of it.
    gap: int = field(default=0, init=False)
    virtual_time: float = field(default=0.0, init=False)
    lined_up: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.interactive = self.service_class is ServiceClass.INTERACTIVE

    def __repr__(self) -> str:
        return (
            f"<Member {self.state.endpoint.id} {self.service_class}: "
            f"{self.inflight} in flight, {len(self.queue)} waiting, floor {self.floor}>"
        )

    @property
    def waiting(self) -> bool:
        """Whether any request waits that could run here."""
        return self.queue.head is not None

    def startable(self, turn: Member | None) -> Start | None:
        """R1: what the endpoint's own limit lets this member start now.

        Args:
            turn: the member that has been overtaken often enough to be next.
        """
        state, ticket, sibling = self.state, self.queue.head, self.sibling
        if ticket is None or not state.usable or (self.room.held and not self.interactive):
            return None
        limit = most = state.limit
        # However small the limit, a floor leaves its sibling one slot.
        kept = sibling.floor if sibling.floor < limit else limit - 1
        if self.interactive:
            if turn is sibling and self.inflight >= min(self.floor, limit - 1):
                return None
        else:
            if sibling.priority:
                most -= kept
                limit -= max(0, kept - sibling.inflight)
            if sibling.waiting and self is not turn and self.inflight >= self.floor:
                return None  # interactive first, where both share the endpoint's limit
        weight = state.endpoint.slots_for(ticket)
        if weight > 1:
            # More than it could ever hold is all that it can hold: such a request runs alone.
            room_most = self.room.most(self)
            most = most if room_most is None else min(most, room_most)
            weight = max(1, min(weight, most))
        if state.inflight + weight > limit:
            return None
        return self, ticket, weight

    def start(self, ticket: Ticket, weight: int, now: float) -> Grant:
        """Take `weight` slots for `ticket`."""
        state = self.state
        state.inflight += weight
        self.room.take(self, weight)
        if self.room.guard is not None:
            self.room.guard.started(self, now)
        return Grant(ticket, self, weight, now, state.breaker.begin(now, state.answer_s))
