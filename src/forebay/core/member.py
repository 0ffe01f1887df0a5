"""A member of a room: one endpoint in one service class, and what its endpoint's limit admits (R1).

The class that the endpoint's role gives it is *native* and owns the floor. A request that lowers or
raises itself comes in as a *visitor*, a member of its own with floor 0: it shares the endpoint's
limit, but not the reserve. So does a *stand-in*, a member that serves the queue of a model that
the endpoint is a fallback of. It is best effort in its room, whatever the class of that queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.core.grant import Grant
from forebay.core.model import ServiceClass

if TYPE_CHECKING:
    from collections.abc import Callable

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
        state: the endpoint.
        queue: what waits for it, and for other endpoints of the same model.
        service_class: how its room treats it.
        floor: slots that it can always reach; 0 for a visitor.
        priority: its floor is reserved even while nothing asks for it.
        stands_in: it serves only while no regular endpoint of the model does.
        room: where it shares a budget.
        yields_to: members of the same endpoint that go first where all share its limit.
        inflight: slots that it has taken.
        live: grants that are out; `inflight` counts their slots.
        waiting: a request waits that could run here; kept by `Room.refresh`.
        alive: requests may run here, if not at once; kept by the queue.
        in_service: it is regular, and nothing keeps requests away; kept by the queue.
    """

    state: EndpointState
    queue: Queue
    service_class: ServiceClass
    floor: int
    priority: bool
    stands_in: bool
    room: Room = field(init=False)
    yields_to: tuple[Member, ...] = field(default=(), init=False)
    interactive: bool = field(init=False)
    inflight: int = field(default=0, init=False)
    live: int = field(default=0, init=False)
    waiting: bool = field(default=False, init=False)
    alive: bool = field(default=False, init=False)
    in_service: bool = field(default=False, init=False)
    # The room's accounts of it; the index is unique in the room.
    index: int = field(default=0, init=False)
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
    def head(self) -> Ticket | None:
        """The request that has waited longest of those that could run here."""
        queue = self.queue
        if self.stands_in or queue.picky:
            return queue.head_for(self)
        return queue.head

    def startable(self, turn: Member | None) -> Start | None:
        """R1: what the endpoint's own limit lets this member start now.

        Args:
            turn: the member that has been overtaken often enough to be next.
        """
        ticket = self.head
        if ticket is None or (self.room.held and not self.interactive):
            return None
        weight = self.admits(ticket, turn)
        return (self, ticket, weight) if weight else None

    def admits(self, ticket: Ticket, turn: Member | None) -> int:
        """R1: the slots that `ticket` may take here now, as far as its endpoint goes; 0: none."""
        state = self.state
        if not state.usable:
            return 0
        limit = most = state.limit
        at_floor = self.inflight >= self.floor
        # Its endpoint's member that has the turn is next; of however small a limit, a floor leaves
        # that one slot.
        if (
            turn is not None
            and turn is not self
            and turn.state is state
            and turn.interactive <= self.interactive
            and (at_floor or self.inflight >= limit - 1)
        ):
            return 0
        if not self.interactive:
            native = state.native
            if native.priority:
                kept = native.floor if native.floor < limit else limit - 1
                most -= kept
                limit -= max(0, kept - native.inflight)
            if self is not turn and at_floor:
                for first in self.yields_to:
                    if first.waiting:
                        return 0
        weight = state.endpoint.slots_for(ticket)
        if weight > 1:
            # More than it could ever hold is all that it can hold: such a request runs alone.
            room_most = self.room.most(self)
            most = most if room_most is None else min(most, room_most)
            weight = max(1, min(weight, most))
        if state.inflight + weight > limit:
            return 0
        return weight

    def weight_at_once(self, ticket: Ticket, now: float) -> int:
        """The slots that `ticket` may take now, if it passes nobody (`Room.lets_pass`); 0: none."""
        room = self.room
        guard = None if self.interactive else room.guard
        if guard is not None and guard.holds(now):
            return 0
        weight = self.admits(ticket, None)
        return weight if weight and room.fits(self, weight) else 0

    def start(self, ticket: Ticket, weight: int, now: float) -> Grant:
        """Take `weight` slots for `ticket`."""
        state, guard = self.state, self.room.guard
        state.inflight += weight
        if state.pool is not None:
            state.pool.started(state, ticket.affinity)
        self.room.take(self, weight)
        if guard is not None:
            guard.started(self, now)
        pass_ = state.breaker.begin(now, state.answer_s)
        if state.inflight == weight or pass_.probe:  # it had nothing to say, or begins anew
            state.silence.since = now
        return Grant(ticket, self, weight, now, pass_, guard)


def members_of(
    state: EndpointState,
    main_class: ServiceClass,
    queue: Callable[[str, ServiceClass], Queue],
) -> tuple[Member, ...]:
    """Make an endpoint's members: one for each class of each model that it serves.

    Args:
        state: the endpoint.
        main_class: of what it is there for; the member that serves that owns the floor.
        queue: finds the queue of a model and a class.
    """
    endpoint = state.endpoint
    main = endpoint.fallback_of or endpoint.model
    members = tuple(
        Member(
            state,
            queue(model, service_class),
            service_class=ServiceClass.BEST_EFFORT if stands_in else service_class,
            floor=endpoint.floor if model == main and service_class is main_class else 0,
            priority=not stands_in and service_class is main_class is ServiceClass.INTERACTIVE,
            stands_in=stands_in,
        )
        for model, stands_in in endpoint.serves
        for service_class in ServiceClass
    )
    for member in members:
        member.yields_to = tuple(m for m in members if _rank(m) < _rank(member))
    return members


def _rank(member: Member) -> int:
    if member.interactive:
        return 0
    return 1 if member.queue.service_class is ServiceClass.INTERACTIVE else 2
