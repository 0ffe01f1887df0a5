"""A bounded queue of tickets of one model and class, and which endpoint may take which of them.

Most tickets may run wherever the model is served. Two things narrow that, and so each endpoint has
a *head* of its own, the ticket that has waited longest of those that it may take:

- A ticket that failed somewhere *avoids* that endpoint: it goes there only if no other one that is
  alive could take it.
- A *stand-in* takes a ticket only while no regular endpoint, of those that the ticket does not
  avoid, is fully in service.

Tickets that avoid the same endpoints wait in one *lane*. There are few lanes: mostly one.

A request that had a slot, and lost it with its endpoint, has waited its turn: it goes before those
that had none, and there is space for it however many wait. There are never more of these than
slots that endpoints had.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.core.member import Member
    from forebay.core.model import ServiceClass, Ticket
    from forebay.core.routing import Pool

# Tickets by arrival, each with its number; unlike a deque, one in the middle leaves in constant
# time.
_Lane = OrderedDict["Ticket", int]

# What the tickets of a lane have in common: they had a slot before, and what they avoid.
_Kind = tuple[bool, frozenset[str]]

_PLAIN: _Kind = (False, frozenset())
# Numbers of those that had a slot before are lower than any other.
_BEFORE_ALL = -(1 << 60)


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """How much may wait, per model and service class."""

    max_requests: int = 1024
    max_bytes: int = 256 * 2**20


@dataclass(slots=True, eq=False, repr=False)
class Queue:
    """The tickets of one model and class that wait, whichever endpoint they will run on.

    Args:
        model: id of the model.
        service_class: the class that they ask in.
        bounds: how much may wait.
        members: the endpoints, in this class, that serve the model or stand in for it.
        sole: the only one of them that is not a stand-in, if there is one only.
        pool: those that are not stand-ins, if there are several.
        head: the ticket that has waited longest.
        size_bytes: what all of them occupy.
        picky: some of them avoid an endpoint, or had a slot before.
    """

    model: str
    service_class: ServiceClass
    bounds: QueueBounds
    members: list[Member] = field(default_factory=list)
    sole: Member | None = field(default=None, init=False)
    pool: Pool | None = field(default=None, init=False)
    head: Ticket | None = field(default=None, init=False)
    size_bytes: int = field(default=0, init=False)
    picky: bool = field(default=False, init=False)
    _plain: _Lane = field(default_factory=OrderedDict, init=False)
    _lanes: dict[_Kind, _Lane] = field(default_factory=dict, init=False)
    _joined: int = field(default=0, init=False)
    _by_endpoint: dict[str, Member] = field(default_factory=dict, init=False)
    # How many of the members are alive, and how many of the regular ones are fully in service.
    _alive: int = field(default=0, init=False)
    _in_service: int = field(default=0, init=False)

    def __repr__(self) -> str:
        return f"<Queue {self.model} {self.service_class}: {len(self)} waiting>"

    def __len__(self) -> int:
        waiting = len(self._plain)
        return waiting + sum(map(len, self._lanes.values())) if self._lanes else waiting

    def __contains__(self, ticket: Ticket) -> bool:
        kind = _kind(ticket)
        lane = self._plain if kind == _PLAIN else self._lanes.get(kind)
        return lane is not None and ticket in lane

    def __iter__(self) -> Iterator[Ticket]:
        if not self._lanes:
            return iter(self._plain)
        numbered = [item for lane in self._all_lanes() for item in lane.items()]
        return iter([ticket for ticket, _ in sorted(numbered, key=_number)])

    # -- who serves it -----------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Let an endpoint take what waits here."""
        self.members.append(member)
        self._by_endpoint[member.state.endpoint.id] = member
        self._find_sole()
        self.review(member)

    def remove(self, member: Member) -> None:
        """Let an endpoint take nothing more."""
        self.members.remove(member)
        del self._by_endpoint[member.state.endpoint.id]
        self._find_sole()
        self._count(member, alive=False, in_service=False)

    def member_of(self, endpoint_id: str) -> Member:
        """The member of an endpoint that serves this queue."""
        return self._by_endpoint[endpoint_id]

    def review(self, member: Member) -> bool:
        """See whether `member` serves, and return whether that changes who may take what."""
        if self._by_endpoint.get(member.state.endpoint.id) is not member:
            return False
        state = member.state
        most = member.room.most(member)
        alive = state.alive and (most is None or most > 0)
        in_service = alive and state.in_service and not member.stands_in
        changed = self._count(member, alive=alive, in_service=in_service)
        return changed and (self.picky or any(m.stands_in for m in self.members))

    def _find_sole(self) -> None:
        regular = [member for member in self.members if not member.stands_in]
        self.sole = regular[0] if len(regular) == 1 else None

    def _count(self, member: Member, *, alive: bool, in_service: bool) -> bool:
        changed = alive is not member.alive or in_service is not member.in_service
        self._alive += alive - member.alive
        self._in_service += in_service - member.in_service
        member.alive, member.in_service = alive, in_service
        return changed

    def may_take(self, member: Member, avoid: frozenset[str]) -> bool:
        """Whether tickets that avoid these endpoints are for `member`, as far as others go."""
        if member.state.endpoint.id in avoid:
            return self._alive == sum(m.alive for m in self._avoided(avoid))
        if not member.stands_in:
            return True
        return self._in_service == sum(m.in_service for m in self._avoided(avoid))

    def _avoided(self, avoid: frozenset[str]) -> Iterator[Member]:
        return (self._by_endpoint[id_] for id_ in avoid if id_ in self._by_endpoint)

    def head_for(self, member: Member) -> Ticket | None:
        """The ticket that has waited longest of those that are for `member`."""
        if not self._lanes:
            return self.head if not member.stands_in or not self._in_service else None
        head, least = None, inf
        for (_, avoid), lane in ((_PLAIN, self._plain), *self._lanes.items()):
            first = next(iter(lane.items()), None)
            if first is not None and first[1] < least and self.may_take(member, avoid):
                head, least = first
        return head

    # -- who waits ---------------------------------------------------------------------------------

    def has_space_for(self, ticket: Ticket) -> bool:
        """Whether `ticket` may join without breaking a bound."""
        return ticket.attempt > 1 or (
            len(self) < self.bounds.max_requests
            and self.size_bytes + ticket.size_bytes <= self.bounds.max_bytes
        )

    def join(self, ticket: Ticket) -> bool:
        """Put `ticket` behind its like, and return whether it is the first of its lane."""
        lane, kind = self._plain, _kind(ticket)
        if kind != _PLAIN:
            lane = self._lanes.setdefault(kind, OrderedDict())
            self.picky = True
        self._joined += 1
        had_slot, _ = kind
        lane[ticket] = self._joined + (_BEFORE_ALL if had_slot else 0)
        self.size_bytes += ticket.size_bytes
        if self.head is None:
            self.head = ticket
        elif had_slot:
            self.head = self._first()
        return len(lane) == 1

    def leave(self, ticket: Ticket) -> bool:
        """Take `ticket` out, from anywhere, and return whether it was the first of its lane."""
        kind = _kind(ticket)
        lane = self._plain if kind == _PLAIN else self._lanes[kind]
        was_first = next(iter(lane)) is ticket
        del lane[ticket]
        self.size_bytes -= ticket.size_bytes
        if not lane and kind != _PLAIN:
            del self._lanes[kind]
            self.picky = bool(self._lanes)
        if ticket is self.head:
            self.head = self._first() if self._lanes else next(iter(self._plain), None)
        return was_first

    def _first(self) -> Ticket:
        firsts = (next(iter(lane.items())) for lane in self._all_lanes() if lane)
        return min(firsts, key=_number)[0]

    def _all_lanes(self) -> Iterator[_Lane]:
        yield self._plain
        yield from self._lanes.values()


def _kind(ticket: Ticket) -> _Kind:
    return ticket.attempt > 1, ticket.avoid


def _number(numbered: tuple[Ticket, int]) -> int:
    return numbered[1]
