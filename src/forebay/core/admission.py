"""Admission: which request starts now, where, and which one waits. It never waits itself.

Theory of operation. A caller (a *driver*) tells what happened: `request`, `cancel`, `release`,
`timing`, `signal`, `tick`. Each call returns what follows from it, a list of *verdicts*: a `Grant`
for every ticket that may start (perhaps this one), a `Refusal` for every ticket that left the
queue unserved. The driver then wakes whoever waits. A ticket is in one place at any time: in its
queue, in a live grant, or gone; each grant is released exactly once.

There is one queue per model and class, and the endpoint is chosen when a slot is free (late
binding). A slot is free when the endpoint's own limit admits it (R1, `forebay.core.member`), the
room on its GPU does (R2 and R3, `forebay.core.room`), and nobody else is first (R4,
`forebay.core.order`). After every call, whatever may start has started: so a call needs to look
only where it changed something.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from forebay.core.grant import Grant, Verdict
from forebay.core.model import Reason, Refusal, Ticket
from forebay.core.observer import Observer
from forebay.core.order import next_start
from forebay.core.refusal import out_of_service, queue_full, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.core.endpoint import EndpointState
    from forebay.core.member import Member
    from forebay.core.model import Ending, ServiceClass, Signal, Timing
    from forebay.core.queue import Queue
    from forebay.core.room import Room

__all__ = ["Admission", "Grant", "Observer", "Verdict"]


@dataclass(slots=True, eq=False, repr=False)
class Admission:
    """The whole decision, over every model, endpoint and room. Build one with `build.build`.

    Args:
        states: every endpoint by id.
        queues: by model and class.
        rooms: every room.
        live: how many grants are out.
    """

    states: Mapping[str, EndpointState]
    queues: Mapping[tuple[str, ServiceClass], Queue]
    rooms: Mapping[str, Room]
    live: int = field(default=0, init=False)
    # Endpoints that time alone may change: held, broken or ramping. In a fixed order, like all
    # that is walked through here, so that the same events always bring the same verdicts.
    _changing: dict[EndpointState, None] = field(default_factory=dict, init=False)
    # Rooms where something may have become startable.
    _dirty: dict[Room, None] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"<Admission: {self.live} live, {list(self.rooms.values())}>"

    # -- what a driver tells -------------------------------------------------------------------

    def request(self, ticket: Ticket, now: float) -> list[Verdict]:
        """Ask for a slot. Without a verdict on `ticket` in the answer, it waits.

        A driver cancels a ticket at its deadline. One that it did not get round to is refused
        when it would have started.
        """
        queue = self.queues.get((ticket.model, ticket.service_class))
        if queue is None:
            return [Refusal(ticket, Reason.UNKNOWN_MODEL)]
        grant = self._grant_at_once(queue, ticket, now)
        if grant is not None:
            return [grant]
        if self._changing:
            for member in queue.members:
                if member.state in self._changing:
                    self._look(member.state, now)
        refused = refusal(queue, ticket, now)
        has_space = queue.has_space_for(ticket)
        if refused is None and queue.head is not None and not has_space:
            refused = queue_full(queue, ticket)
        if refused is not None:
            return self._settle(now, [refused])
        queue.join(ticket)
        if queue.head is ticket:
            self._attend(queue)
        out = self._settle(now, [])
        if not has_space and ticket in queue:  # the bounds are for those that wait
            self._leave(queue, ticket)
            out.append(queue_full(queue, ticket))
            self._settle(now, out)
        return out

    def cancel(self, ticket: Ticket, now: float) -> list[Verdict]:
        """Forget a ticket that waits; nothing happens if it does not wait any more."""
        queue = self.queues.get((ticket.model, ticket.service_class))
        if queue is None or ticket not in queue:
            return []
        self._leave(queue, ticket)
        return self._settle(now, [])

    def timing(self, grant: Grant, timing: Timing, now: float) -> list[Verdict]:
        """Fold in a reading of a request that still runs (its first token): it is answered."""
        state = grant.member.state
        state.read(timing, grant.at, now)
        state.answered(grant, now)
        return self._revisit(state, now)

    def release(self, grant: Grant, ending: Ending, now: float) -> list[Verdict]:
        """Give a slot back, and tell how its request ended.

        Raises:
            ValueError: this grant has been released before.
        """
        if not grant.held:
            raise ValueError(f"a slot of {grant.endpoint.id!r} was released twice")
        grant.held = False
        self.live -= 1
        member, weight = grant.member, grant.weight
        state = member.state
        state.ended(grant, ending, now)
        state.inflight -= weight
        member.room.give_back(member, weight)
        return self._revisit(state, now)

    def signal(self, endpoint_id: str, signal: Signal | None, now: float) -> list[Verdict]:
        """Fold in what an engine says of itself; None means that it could not be read."""
        state = self.states[endpoint_id]
        state.hear(signal, now)
        return self._revisit(state, now)

    def set_budget(self, room: Room, budget: int, now: float) -> list[Verdict]:
        """Move a budget, live. What is in flight stays; below it, nothing more is admitted.

        Raises:
            ValueError: the floors of the room's members add up to more.
        """
        room.set_budget(budget)
        return self._rearrange(room, now)

    def set_bounds(self, endpoint_id: str, floor: int, ceiling: int, now: float) -> list[Verdict]:
        """Move an endpoint's floor and ceiling, live. What is in flight stays.

        Raises:
            ValueError: the floors of the room's members would add up to more than its budget.
        """
        state = self.states[endpoint_id]
        state.native.room.set_floor(state.native, floor)
        state.resize(floor, ceiling, now)
        self._look(state, now)
        return self._rearrange(state.native.room, now)

    def tick(self, now: float) -> list[Verdict]:
        """Look again: something that time alone changes may have changed (see `wake_at`)."""
        for state in tuple(self._changing):
            self._look(state, now)
        return self._settle(now, [])

    def wake_at(self, now: float) -> float | None:
        """When `tick` is worth calling although nothing else happens, if ever."""
        if not self._changing:
            return None
        at = min((s.changes_at(now) for s in self._changing if s.waiting), default=inf)
        return at if at < inf else None

    # -- what follows ----------------------------------------------------------------------------

    def _grant_at_once(self, queue: Queue, ticket: Ticket, now: float) -> Grant | None:
        """Grant without queueing where nobody waits, in the usual case; None says nothing yet.

        This is what queueing, lining up and settling would come to, at a small part of their cost:
        R4 needs somebody who waits, so R1 to R3 remain.
        """
        member = queue.members[0]
        state, room = member.state, member.room
        if (
            room.waiting
            or len(queue.members) > 1
            or member is not state.native  # a visitor leaves its host's floor alone: `startable`
            or not state.calm
            or ticket.deadline <= now
            or (ticket.weight or state.endpoint.slot_weight) > 1
            or state.inflight >= state.limit
            or not room.fits(member, 1)
        ):
            return None
        if not member.interactive:
            room.catch_up(member)
        return self._start(member, ticket, 1, now)

    def _revisit(self, state: EndpointState, now: float) -> list[Verdict]:
        """Start and refuse what may be, after something happened at `state`."""
        if not state.calm:
            self._look(state, now)
        if not state.native.room.waiting:
            return []
        out: list[Verdict] = []
        if not state.usable:
            self._flush(state, now, out)
        self._line_up(state)
        return self._settle(now, out)

    def _rearrange(self, room: Room, now: float) -> list[Verdict]:
        """Start and refuse what may be, after the budget or a floor of `room` moved."""
        out: list[Verdict] = []
        for member in room.members:
            self._flush(member.state, now, out)
            self._line_up(member.state)
        return self._settle(now, out)

    def _look(self, state: EndpointState, now: float) -> None:
        """See what time, a law, the breaker or the engine changed at `state`."""
        if state.look(now):
            for member in state.members:
                member.room.refresh(member)
            self._line_up(state)
        if state.steady:
            self._changing.pop(state, None)
        else:
            self._changing[state] = None

    def _line_up(self, state: EndpointState) -> None:
        if not state.native.room.waiting:
            return
        for member in state.members:
            member.room.enlist(member)
        self._dirty[state.native.room] = None

    def _attend(self, queue: Queue) -> None:
        """Line up wherever it may matter that `queue` has another head, or none."""
        members = queue.members
        for member in members:
            member.room.refresh(member)
            member.room.enlist(member)
            # What the head held back at its own endpoint's limit may go now.
            member.room.enlist(member.sibling)
        if len(members) > 1:
            members = sorted(members, key=_load, reverse=True)
        for member in members:  # the last in is settled first: where most is free
            self._dirty.pop(member.room, None)
            self._dirty[member.room] = None

    def _leave(self, queue: Queue, ticket: Ticket) -> None:
        was_head = ticket is queue.head
        queue.leave(ticket)
        if was_head:  # whoever was behind it may fit where it did not
            self._attend(queue)

    def _settle(self, now: float, out: list[Verdict]) -> list[Verdict]:
        """Start whatever may start in the rooms where something changed."""
        while self._dirty:
            room, _ = self._dirty.popitem()
            while (start := next_start(room)) is not None:
                member, ticket, weight = start
                if ticket.deadline <= now:
                    self._leave(member.queue, ticket)
                    out.append(Refusal(ticket, Reason.DEADLINE))
                else:
                    out.append(self._grant(member, ticket, weight, now))
                    if not member.state.usable:  # it probes; the others do not wait for it
                        self._flush(member.state, now, out)
        return out

    def _grant(self, member: Member, ticket: Ticket, weight: int, now: float) -> Grant:
        queue = member.queue
        queue.leave(ticket)
        grant = self._start(member, ticket, weight, now)
        head = queue.head
        if head is None or head.weight != ticket.weight:
            self._attend(queue)
        if grant.pass_.probe:
            self._look(member.state, now)
        return grant

    def _start(self, member: Member, ticket: Ticket, weight: int, now: float) -> Grant:
        state = member.state
        state.inflight += weight
        member.room.take(member, weight)
        self.live += 1
        return Grant(ticket, member, weight, now, state.breaker.begin(now, state.answer_s))

    def _flush(self, state: EndpointState, now: float, out: list[Verdict]) -> None:
        """Refuse whoever waits for an endpoint, if neither it nor another one will serve them."""
        for member in state.members:
            queue = member.queue
            gone = out_of_service(queue, now) if queue else None
            if gone is not None:
                for ticket in tuple(queue):
                    queue.leave(ticket)
                    out.append(Refusal(ticket, *gone))
                self._attend(queue)


def _load(member: Member) -> float:
    return member.state.inflight / member.state.limit
