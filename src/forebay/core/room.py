"""The room on one GPU: what starts and ends under a joint budget, and what fits (R2 and R3).

Theory of operation. A `Room` is where members share a budget: a GPU group that has one, or else a
single endpoint (a group without a budget binds nobody, so each endpoint is then a room of its own,
with no budget: R5).

- R2, joint: what is in flight, plus the request, fits the budget.
- R3, reserve: what the other members still lack to their floors (their *gap*) stays free. A
  priority member's gap always counts. A best-effort member's counts while it has demand that its
  endpoint can serve, and then not against a peer that is below its own floor.

The room also keeps who waits in which order; `forebay.core.order` decides who is next. All sums are
kept as they change, so that a decision costs the same however many wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.member import Member
    from forebay.core.protection import Guard

# A heap of members in line: (sort key, the member's index, member).
Line = list[tuple[float, int, "Member"]]


@dataclass(slots=True, eq=False, repr=False)
class Room:
    """The accounts of one budget.

    Args:
        name: of the GPU group, or of the endpoint that is alone.
        budget: slots that its members share; None binds nobody.
        max_overtakes: how many others may start before a member that waits with nothing in flight
            gets the turn.
    """

    name: str
    budget: int | None
    max_overtakes: int
    members: list[Member] = field(default_factory=list)
    guard: Guard | None = None
    held: bool = False  # by the guard: no best-effort member may start; set before who is next
    inflight: int = 0
    waiting: int = 0  # members that have something waiting
    # Members that have something waiting. A key may be out of date, but only too low.
    interactive: Line = field(default_factory=list)
    best_effort: Line = field(default_factory=list)
    # Members that wait below their floor.
    hungry: dict[Member, None] = field(default_factory=dict)
    _added: int = 0
    _priority_floors: int = 0
    _gaps: int = 0
    _priority_gaps: int = 0
    _virtual_time: float = 0.0  # of the last best-effort start above a floor
    _grants: int = 0
    _turned_at: int = 0  # the count of grants when the turn was last used
    # Members that wait with nothing in flight → the count of grants when that began; oldest first.
    _starving: dict[Member, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Room {self.name}: {self.inflight} of {self.budget}, {self.members}>"

    @property
    def bulk_waits(self) -> bool:
        """Whether best-effort work waits that an endpoint here might take."""
        return any(m.waiting and not m.interactive and m.state.usable for m in self.members)

    def add(self, member: Member) -> None:
        """Let `member` in, with whatever it has in flight. All floors must fit the budget."""
        self._added += 1
        member.room, member.index = self, self._added
        member.gap, member.waiting, member.lined_up = 0, False, False
        member.virtual_time = self._virtual_time
        self.members.append(member)
        self.inflight += member.inflight
        if member.priority:
            self._priority_floors += member.floor
        self.refresh(member)

    def remove(self, member: Member) -> None:
        """Let `member` go, with whatever it has in flight. It keeps no floor."""
        self.set_floor(member, 0)
        self.members.remove(member)
        self.inflight -= member.inflight
        self.waiting -= member.waiting
        self._starving.pop(member, None)
        if member.lined_up:
            line = self.interactive if member.interactive else self.best_effort
            line[:] = [place for place in line if place[2] is not member]
            heapify(line)

    def fits(self, member: Member, weight: int, *, on_turn: bool = False) -> bool:
        """R2 and R3: whether `weight` more slots for `member` leave the others their due."""
        if self.budget is None:
            return True
        # Below its floor, or on its turn, it goes before the floors of best-effort peers, which
        # may have been lent out; but nothing goes before another member's reserved floor.
        if on_turn or member.inflight + weight <= member.floor:
            kept = self._priority_gaps - (member.gap if member.priority else 0)
        else:
            kept = self._gaps - member.gap
        return self.inflight + weight + kept <= self.budget

    def lets_pass(self, member: Member) -> bool:
        """Whether it is plain that a start of `member`, if it fits, passes nobody who waits here.

        Nobody waits, or only best-effort work of which none has the turn, and `member` is not.
        """
        if not self.waiting:
            return True
        return member.interactive and not self.interactive and self.turn is None

    def most(self, member: Member) -> int | None:
        """The most slots that `member` could ever hold: the budget less the others' reserves."""
        if self.budget is None:
            return None
        return self.budget - self._priority_floors + (member.floor if member.priority else 0)

    def set_floor(self, member: Member, floor: int) -> None:
        """Move a member's floor. All of them together must fit the budget."""
        if member.priority:
            self._priority_floors += floor - member.floor
        member.floor = floor
        self.refresh(member)

    @property
    def turn(self) -> Member | None:
        """The member that has been overtaken often enough to be next.

        It is the one that waits longest with nothing in flight, and turns are as far apart as
        `max_overtakes` says, so that many such members do not together overtake everybody else.
        """
        for member, since in self._starving.items():
            overtaken = self._grants - max(since, self._turned_at)
            return member if overtaken >= self.max_overtakes else None
        return None

    @property
    def longest_starving(self) -> Member | None:
        """The member that waits longest with nothing in flight."""
        return next(iter(self._starving), None)

    def take(self, member: Member, weight: int) -> None:
        """Account for a start."""
        on_turn = self._starving and self.turn is member
        member.inflight += weight
        self.inflight += weight
        member.live += 1
        self._grants += 1
        if on_turn:
            self._turned_at = self._grants
        # Best-effort members divide what is above their floors in proportion to these, by
        # start-time fair queueing. A floor is their due, and costs nothing.
        if not member.interactive and member.inflight > member.floor:
            above = min(weight, member.inflight - member.floor)
            self._virtual_time = max(self._virtual_time, member.virtual_time)
            member.virtual_time += above / max(1, member.floor)
        self.refresh(member)

    def give_back(self, member: Member, weight: int) -> None:
        """Account for an end."""
        member.inflight -= weight
        self.inflight -= weight
        member.live -= 1
        self.refresh(member)

    def refresh(self, member: Member) -> None:
        """Bring the accounts up to date after `member`'s in-flight, queue or endpoint changed."""
        inflight = member.inflight
        if inflight >= member.floor and not (  # nothing waits, nothing lacks: mostly
            member.waiting or member.gap or member.queue.head or self.hungry or self._starving
        ):
            return
        waiting = member.head is not None
        if waiting is not member.waiting:
            member.waiting = waiting
            self.waiting += 1 if waiting else -1
        usable = member.state.usable
        waits = usable and waiting
        lacks = member.floor - inflight if inflight < member.floor else 0
        gap = lacks if member.priority or waits or (usable and inflight) else 0
        if gap != member.gap:
            self._gaps += gap - member.gap
            if member.priority:
                self._priority_gaps += gap - member.gap
            member.gap = gap
        if waits and lacks:
            self.hungry[member] = None
        elif member in self.hungry:
            del self.hungry[member]
        if waits and not inflight:
            self._starving.setdefault(member, self._grants)
        elif member in self._starving:
            del self._starving[member]

    def enlist(self, member: Member) -> None:
        """Let `member` stand in line, if it has something waiting and does not yet."""
        if member.lined_up or member.head is None:
            return
        member.lined_up = True
        if member.interactive:
            heappush(self.interactive, (self.key(member), member.index, member))
        else:
            self.catch_up(member)
            heappush(self.best_effort, (self.key(member), member.index, member))

    def catch_up(self, member: Member) -> None:
        """Begin a best-effort demand: the time without one earns no share of what follows."""
        member.virtual_time = max(member.virtual_time, self._virtual_time)

    @staticmethod
    def key(member: Member) -> float:
        """The place in line: arrival for interactive members, fair share for best-effort ones.

        Both only ever grow, so an old key is a lower bound and is put right when it comes up.
        """
        if not member.interactive:
            return member.virtual_time
        head = member.head
        return head.asked_at if head else inf
