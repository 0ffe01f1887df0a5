"""What follows from an event: who starts and who is refused where something changed.

`Admission` notes here what an event changed (`look`, `line_up`, `attend`, `leave`); `settle` then
starts whatever may start in those rooms, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.core.model import Reason, Refusal
from forebay.core.order import next_start
from forebay.core.refusal import out_of_service
from forebay.core.routing import choices

if TYPE_CHECKING:
    from forebay.core.endpoint import EndpointState
    from forebay.core.grant import Verdict
    from forebay.core.member import Member, Start
    from forebay.core.model import Ticket
    from forebay.core.protection import Guard
    from forebay.core.queue import Queue
    from forebay.core.room import Room


@dataclass(slots=True, eq=False, repr=False)
class Dispatch:
    """Whatever may have become startable, and what time alone may make so.

    Both are in a fixed order, so that the same events always bring the same verdicts.

    Args:
        changing: endpoints that time alone may change: held, broken or ramping.
        holding: guards that hold best-effort work back.
    """

    changing: dict[EndpointState, None] = field(default_factory=dict, init=False)
    holding: dict[Guard, None] = field(default_factory=dict, init=False)
    # Rooms where something may have become startable.
    _dirty: dict[Room, None] = field(default_factory=dict, init=False)

    @property
    def noted(self) -> bool:
        """Whether there is something to settle."""
        return bool(self._dirty)

    def look(self, state: EndpointState, now: float) -> None:
        """See what time, a law, the breaker or the engine changed at `state`."""
        if state.look(now):
            if state.pool is not None:
                state.pool.moved(state)
            for member in state.members:
                member.room.refresh(member)
            self.review(state)
            self.line_up(state)
        if state.steady:
            self.changing.pop(state, None)
        else:
            self.changing[state] = None

    def review(self, state: EndpointState) -> None:
        """Note that what `state` serves may have changed, and so who else serves it."""
        for member in state.members:
            queue = member.queue
            if queue.review(member) and queue.head is not None:
                self.attend(queue)

    def free(self, now: float) -> None:
        """See which guards let best-effort work go on."""
        for guard in tuple(self.holding):
            guard.look(now)
            if not guard.holds(now):
                del self.holding[guard]
                for room in guard.rooms:
                    for member in room.members:
                        room.enlist(member)
                    self._dirty[room] = None

    def line_up(self, state: EndpointState) -> None:
        """Note that more may start at `state` than before."""
        if not state.native.room.waiting:
            return
        for member in state.members:
            member.room.enlist(member)
        self._dirty[state.native.room] = None

    def attend(self, queue: Queue) -> None:
        """Note, wherever it may matter, that `queue` has other tickets to start next, or none."""
        for member in queue.members:
            member.room.refresh(member)
            # What was held back for these at the endpoint's limit may go now: all line up.
            for each in member.state.members:
                each.room.enlist(each)
        for member in _worst_first(queue):  # the last in is settled first
            self._dirty.pop(member.room, None)
            self._dirty[member.room] = None

    def leave(self, queue: Queue, ticket: Ticket) -> None:
        """Take `ticket` out of its queue."""
        if queue.leave(ticket):  # whoever was behind it may fit where it did not
            self.attend(queue)

    def flush(self, state: EndpointState, now: float, out: list[Verdict]) -> None:
        """Refuse whoever waits for an endpoint, if neither it nor another one will serve them."""
        for member in state.members:
            self.flush_queue(member.queue, now, out)

    def flush_queue(self, queue: Queue, now: float, out: list[Verdict]) -> None:
        """Refuse whoever waits in a queue that nobody will serve."""
        gone = out_of_service(queue, now) if queue else None
        if gone is not None:
            for ticket in tuple(queue):
                queue.leave(ticket)
                out.append(Refusal(ticket, *gone))
            self.attend(queue)

    def settle(self, now: float, out: list[Verdict]) -> list[Verdict]:
        """Start whatever may start where something changed, and return `out` with it."""
        while self._dirty:
            room, _ = self._dirty.popitem()
            while (start := self._next(room, now)) is not None:
                member, ticket, weight = start
                if ticket.deadline <= now:
                    self.leave(member.queue, ticket)
                    out.append(Refusal(ticket, Reason.DEADLINE))
                else:
                    self._start_first(member, ticket, weight, now, out)
        return out

    def start(
        self, member: Member, ticket: Ticket, weight: int, now: float, out: list[Verdict]
    ) -> None:
        """Start `ticket`, which is in no queue, and note what follows."""
        grant = member.start(ticket, weight, now)
        out.append(grant)
        if grant.pass_.probe:  # the others do not wait for it
            self.look(member.state, now)
            self.flush(member.state, now, out)

    def _next(self, room: Room, now: float) -> Start | None:
        guard = room.guard
        if guard is not None:
            room.held = guard.holds(now)
            if room.held and room.bulk_waits:
                guard.wanted()
                self.holding[guard] = None
        return next_start(room)

    def _start_first(
        self, member: Member, ticket: Ticket, weight: int, now: float, out: list[Verdict]
    ) -> None:
        """Start the first ticket of a queue that may start."""
        queue = member.queue
        was_picky = queue.picky
        queue.leave(ticket)
        self.start(member, ticket, weight, now, out)
        head = queue.head
        if (
            head is None
            or was_picky
            or head.weight != ticket.weight
            or head.size_tokens != ticket.size_tokens
        ):
            self.attend(queue)


def _worst_first(queue: Queue) -> list[Member]:
    """A queue's members, where its head would best start last; one may come twice."""
    members, head = queue.members, queue.head
    if len(members) == 1 or head is None:
        return members
    ranked = sorted(members, key=_load, reverse=True)
    if queue.pool is not None:
        best = [queue.member_of(s.endpoint.id) for s in choices(queue.pool, head.affinity)]
        ranked += reversed(list(dict.fromkeys(best)))
    return ranked


def _load(member: Member) -> tuple[bool, float]:
    """Stand-ins come last."""
    return member.stands_in, member.state.inflight / member.state.limit
