"""The room on one GPU: who may start under a joint budget (rules R2 to R5).

Theory of operation. A `Room` is where members share a budget: a GPU group that has one, or else a
single endpoint (a group without a budget binds nobody, so each endpoint is then a room of its own,
with no budget). A `Member` is one endpoint in one service class. The class that the endpoint's
role gives it is *native* and owns the floor; a request that lowers or raises itself comes in as a
visitor, a member of its own with floor 0, which shares the endpoint's limit but not its reserve.

- R2, joint: what is in flight, plus the request, fits the budget.
- R3, reserve: what the other members still lack to their floors (their *gap*) stays free. A
  priority member's gap always counts, a best-effort member's while it has demand.
- R4, yield: while an interactive request waits that lacks only room, best-effort members at or
  above their floor get nothing.
- Nobody starves: a member that waits with nothing in flight, while `max_overtakes` others
  started, gets the *turn*: it is next, and only priority members below their floor go before it.
  That is how a heavy request gathers room, and how `flex` work on a busy chat model progresses.

All sums are kept as they change, so that a decision costs the same however many wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappush
from typing import TYPE_CHECKING

from forebay.core.model import ServiceClass

if TYPE_CHECKING:
    from forebay.core.endpoint import EndpointState
    from forebay.core.queue import Queue

# (sort key, member's index, member): see `Room.enlist`.
Line = list[tuple[float, int, "Member"]]


@dataclass(slots=True, eq=False, repr=False)
class Member:
    """One endpoint in one service class, inside a room.

    Args:
        index: unique in the room.
        floor: slots it can always reach; 0 for a visitor.
        priority: its floor is reserved even while it has no demand.
        share: relative share of what best-effort members divide among themselves.
    """

    index: int
    state: EndpointState
    queue: Queue
    room: Room
    service_class: ServiceClass
    floor: int
    priority: bool
    share: int
    inflight: int = 0
    gap: int = 0
    virtual_time: float = 0.0  # of start-time fair queueing, among best-effort members
    lined_up: bool = False
    sibling: Member = field(init=False)  # the same endpoint's other member

    def __repr__(self) -> str:
        return (
            f"<Member {self.state.endpoint.id} {self.service_class}: {self.inflight} in flight, "
            f"{len(self.queue)} waiting, floor {self.floor}>"
        )

    @property
    def interactive(self) -> bool:
        """Whether it is served before best-effort members."""
        return self.service_class is ServiceClass.INTERACTIVE

    @property
    def waiting(self) -> bool:
        """Whether any request waits that could run here."""
        return len(self.queue) > 0


@dataclass(slots=True, eq=False, repr=False)
class Room:
    """The accounts of one budget; it decides, the caller moves the tickets."""

    name: str
    budget: int | None
    members: list[Member] = field(default_factory=list)
    inflight: int = 0
    grants: int = 0
    # Heaps of members that have something waiting. A key may be out of date, but only too low.
    interactive: Line = field(default_factory=list)
    best_effort: Line = field(default_factory=list)
    # Members that wait below their floor.
    hungry: dict[Member, None] = field(default_factory=dict)
    _gaps: int = 0
    _priority_gaps: int = 0
    _virtual_time: float = 0.0
    # Members that wait with nothing in flight → the count of grants when that began; oldest first.
    _starving: dict[Member, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Room {self.name}: {self.inflight} of {self.budget}, {self.members}>"

    def fits(self, member: Member, weight: int, *, on_turn: bool = False) -> bool:
        """R2 and R3: whether `weight` more slots for `member` leave the others their due."""
        if self.budget is None:
            return True
        # A reserved floor, and the one whose turn it is, go before the floors of best-effort
        # peers, which may have been lent out; but nothing goes before another reserved floor.
        if on_turn or (member.priority and member.inflight + weight <= member.floor):
            kept = self._priority_gaps - (member.gap if member.priority else 0)
        else:
            kept = self._gaps - member.gap
        return self.inflight + weight + kept <= self.budget

    def most(self, member: Member) -> int | None:
        """The most slots that `member` could ever hold: the budget less the others' reserves."""
        if self.budget is None:
            return None
        return self.budget - sum(m.floor for m in self.members if m.priority and m is not member)

    def set_budget(self, budget: int) -> None:
        """Move the budget.

        Raises:
            ValueError: the floors add up to more.
        """
        self._check(budget, sum(m.floor for m in self.members))
        self.budget = budget

    def set_floor(self, member: Member, floor: int) -> None:
        """Move a member's floor.

        Raises:
            ValueError: the floors would add up to more than the budget.
        """
        self._check(self.budget, sum(m.floor for m in self.members if m is not member) + floor)
        member.floor = floor
        self.refresh(member)

    def _check(self, budget: int | None, floors: int) -> None:
        if budget is not None and floors > budget:
            raise ValueError(f"group {self.name!r}: floors total {floors}, budget is {budget}")

    def turn(self, max_overtakes: int) -> Member | None:
        """The member that has been overtaken often enough to be next."""
        for member, since in self._starving.items():
            return member if self.grants - since >= max_overtakes else None
        return None

    def take(self, member: Member, weight: int) -> None:
        """Account for a start."""
        member.inflight += weight
        self.inflight += weight
        self.grants += 1
        if not member.interactive:
            self._virtual_time = member.virtual_time
            member.virtual_time += weight / member.share
        self._starving.pop(member, None)
        self.refresh(member)

    def give_back(self, member: Member, weight: int) -> None:
        """Account for an end."""
        member.inflight -= weight
        self.inflight -= weight
        self.refresh(member)

    def refresh(self, member: Member) -> None:
        """Bring the sums up to date after `member`'s in-flight or queue changed."""
        waiting = member.waiting
        lacks = max(0, member.floor - member.inflight)
        gap = lacks if member.priority or waiting or member.inflight else 0
        self._gaps += gap - member.gap
        if member.priority:
            self._priority_gaps += gap - member.gap
        member.gap = gap
        if waiting and lacks:
            self.hungry[member] = None
        else:
            self.hungry.pop(member, None)
        if waiting and not member.inflight and member.state.usable:
            self._starving.setdefault(member, self.grants)
        else:
            self._starving.pop(member, None)

    def enlist(self, member: Member) -> None:
        """Let `member` stand in line, if it has something waiting and does not yet."""
        if member.lined_up or not member.waiting:
            return
        member.lined_up = True
        if not member.interactive:  # no credit for the time without demand
            member.virtual_time = max(member.virtual_time, self._virtual_time)
        line = self.interactive if member.interactive else self.best_effort
        heappush(line, (self.key(member), member.index, member))

    @staticmethod
    def key(member: Member) -> float:
        """The place in line: arrival for interactive members, fair share for best-effort ones.

        Both only ever grow, so an old key is a lower bound and is put right when it comes up.
        """
        if member.interactive:
            head = member.queue.head
            return head.asked_at if head else float("inf")
        return member.virtual_time
