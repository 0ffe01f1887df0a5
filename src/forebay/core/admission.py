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
only where it changed something, and says to `forebay.core.dispatch` where that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from forebay.core.changes import Changes
from forebay.core.grant import Grant, Verdict
from forebay.core.model import Reason, Refusal, Ticket
from forebay.core.observer import Observer
from forebay.core.refusal import queue_full, refusal
from forebay.core.routing import pick

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.core.endpoint import EndpointState
    from forebay.core.member import Member
    from forebay.core.model import Ending, ServiceClass, Signal, Timing
    from forebay.core.queue import Queue
    from forebay.core.room import Room
    from forebay.core.routing import Pool

__all__ = ["Admission", "Grant", "Observer", "Verdict"]


@dataclass(slots=True, eq=False, repr=False)
class Admission(Changes):
    """The whole decision, over every model, endpoint and room. Build one with `build.build`.

    What the configuration may change while it runs is in `Changes`.

    Args:
        layout: where everything is.
    """

    def __repr__(self) -> str:
        return f"<Admission: {self.live} live, {list(self.rooms.values())}>"

    @property
    def states(self) -> Mapping[str, EndpointState]:
        """Every endpoint by id."""
        return self.layout.states

    @property
    def queues(self) -> Mapping[tuple[str, ServiceClass], Queue]:
        """Every queue by model and class."""
        return self.layout.queues

    @property
    def rooms(self) -> Mapping[str, Room]:
        """Every room by name: a GPU group's that has a budget, else its endpoint's id."""
        return self.layout.rooms

    @property
    def live(self) -> int:
        """How many grants are out."""
        return sum(state.live for state in self.states.values())

    # -- what a driver tells -------------------------------------------------------------------

    def request(self, ticket: Ticket, now: float) -> list[Verdict]:
        """Ask for a slot. Without a verdict on `ticket` in the answer, it waits.

        A driver cancels a ticket at its deadline. One that it did not get round to is refused
        when it would have started.
        """
        queue = self.layout.queues.get((ticket.model, ticket.service_class))
        if queue is None:
            return [Refusal(ticket, Reason.UNKNOWN_MODEL)]
        if queue.sole is not None:
            grant = self._grant_at_once(queue.sole, ticket, now)
            if grant is not None:
                return [grant]
        elif queue.pool is not None and queue.head is None:
            started = self._route(queue.pool, queue, ticket, now)
            if started:
                return started
        return self._queue_up(queue, ticket, now)

    def cancel(self, ticket: Ticket, now: float) -> list[Verdict]:
        """Forget a ticket that waits; nothing happens if it does not wait any more."""
        queue = self.layout.queues.get((ticket.model, ticket.service_class))
        if queue is None or ticket not in queue:
            return []
        self._dispatch.leave(queue, ticket)
        return self._dispatch.settle(now, [])

    def timing(self, grant: Grant, timing: Timing, now: float) -> list[Verdict]:
        """Fold in a reading of a request that still runs (its first token): it is answered."""
        state = grant.member.state
        state.read(timing, grant, now)
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
        member, weight = grant.member, grant.weight
        state = member.state
        state.ended(grant, ending, now)
        state.inflight -= weight
        if state.pool is not None:
            state.pool.ended(state, grant.ticket.affinity)
        member.room.give_back(member, weight)
        if grant.guard is not None:
            grant.guard.ended(grant, now)
        return self._revisit(state, now)

    def signal(self, endpoint_id: str, signal: Signal | None, now: float) -> list[Verdict]:
        """Fold in what an engine says of itself; None means that it could not be read."""
        state = self.layout.states[endpoint_id]
        state.hear(signal, now)
        return self._revisit(state, now)

    def tick(self, now: float) -> list[Verdict]:
        """Look again: something that time alone changes may have changed (see `wake_at`)."""
        for state in tuple(self._dispatch.changing):
            self._dispatch.look(state, now)
        self._dispatch.free(now)
        return self._dispatch.settle(now, [])

    def wake_at(self, now: float) -> float | None:
        """When `tick` is worth calling although nothing else happens, if ever."""
        dispatch = self._dispatch
        if not (dispatch.changing or dispatch.holding):
            return None
        times = [state.changes_at(now) for state in dispatch.changing if state.waiting]
        times += [guard.opens_at(now) for guard in dispatch.holding]
        at = min(times, default=inf)
        return at if at < inf else None

    # -- what follows ----------------------------------------------------------------------------

    def _queue_up(self, queue: Queue, ticket: Ticket, now: float) -> list[Verdict]:
        """Let a ticket wait, unless it may start, or may not wait."""
        dispatch = self._dispatch
        if dispatch.changing:
            for member in queue.members:
                if member.state in dispatch.changing:
                    dispatch.look(member.state, now)
        refused = refusal(queue, ticket, now)
        has_space = queue.has_space_for(ticket)
        if refused is None and queue.head is not None and not has_space:
            refused = queue_full(queue, ticket)
        if refused is not None:
            return dispatch.settle(now, [refused])
        if queue.join(ticket):
            dispatch.attend(queue)
        out = dispatch.settle(now, [])
        if not has_space and ticket in queue:  # the bounds are for those that wait
            dispatch.leave(queue, ticket)
            out.append(queue_full(queue, ticket))
            dispatch.settle(now, out)
        return out

    def _grant_at_once(self, member: Member, ticket: Ticket, now: float) -> Grant | None:
        """Grant without queueing where nobody waits, in the usual case; None says nothing yet.

        This is what queueing, lining up and settling would come to, at a small part of their cost:
        R4 needs somebody who waits, so R1 to R3 remain.

        Args:
            member: the only regular one of its queue.
            ticket: who asks.
            now: the time.
        """
        state, room = member.state, member.room
        if (
            room.waiting
            or ticket.avoid
            or member is not state.native  # a visitor leaves its host's floor alone: `startable`
            or not state.calm
            or ticket.deadline <= now
            or state.endpoint.slots_for(ticket) > 1
            or state.inflight >= state.limit
            or not room.fits(member, 1)
        ):
            return None
        if not member.interactive:
            if room.guard is not None and room.guard.holds(now):
                return None
            room.catch_up(member)
        return member.start(ticket, 1, now)

    def _route(self, pool: Pool, queue: Queue, ticket: Ticket, now: float) -> list[Verdict]:
        """Start `ticket` at the endpoint that routing picks, if that is plain; nothing says not."""
        if ticket.avoid or ticket.deadline <= now:
            return []
        dispatch = self._dispatch
        for state in tuple(dispatch.changing):
            if state.pool is pool:
                dispatch.look(state, now)
        picked = pick(pool, queue, ticket, now)
        if picked is None:
            return []
        member, weight = picked
        if not member.interactive:
            member.room.catch_up(member)
        out: list[Verdict] = []
        dispatch.start(member, ticket, weight, now, out)
        dispatch.line_up(member.state)  # whoever waits there may have got the turn
        return dispatch.settle(now, out)

    def _revisit(self, state: EndpointState, now: float) -> list[Verdict]:
        """Start and refuse what may be, after something happened at `state`."""
        if not state.calm:
            self._dispatch.look(state, now)
        if self._dispatch.holding:
            self._dispatch.free(now)
        elif not (state.native.room.waiting or self._dispatch.noted):
            return []
        out: list[Verdict] = []
        if not state.usable:
            self._dispatch.flush(state, now, out)
        self._dispatch.line_up(state)
        return self._dispatch.settle(now, out)
