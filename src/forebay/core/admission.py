"""Admission: which request starts now, where, and which one waits. It never waits itself.

Theory of operation. A caller (a *driver*) tells what happened: `request`, `cancel`, `release`,
`timing`, `signal`, `tick`. Each call returns what follows from it, a list of *verdicts*: a `Grant`
for every ticket that may start (perhaps this one), a `Refusal` for every ticket that left the
queue unserved. The driver then wakes whoever waits. A ticket is in one place at any time: in its
queue, in a live grant, or gone; each grant is released exactly once.

There is one queue per model and class, and the endpoint is chosen when a slot is free (late
binding). A slot is free when the endpoint's own limit admits it (R1) and the room on its GPU does
(R2 to R5, see `forebay.core.room`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heapreplace
from math import ceil
from typing import TYPE_CHECKING

from forebay.core.breaker import BreakerState
from forebay.core.model import EngineState, Outcome, Reason, Refusal, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from forebay.core.breaker import Change, Pass
    from forebay.core.endpoint import EndpointState
    from forebay.core.model import Decision, Endpoint, Ending, ServiceClass, Signal, Timing
    from forebay.core.queue import Queue
    from forebay.core.room import Line, Member, Room

# A client is never told to stay away for longer, seconds.
_LONGEST_RETRY_AFTER_S = 60
# When an engine that starts or sleeps is worth another try, seconds.
_ENGINE_RETRY_S = 5.0


@dataclass(slots=True, eq=False, repr=False)
class Grant:
    """Leave to start: a slot that is held until `Admission.release`.

    Args:
        ticket: whose it is.
        member: where it runs, and in which class.
        weight: the slots that it holds.
        at: when it was given.
        pass_: the breaker's leave; `pass_.probe` tells a half-open probe.
    """

    ticket: Ticket
    member: Member
    weight: int
    at: float
    pass_: Pass

    def __repr__(self) -> str:
        return f"<Grant of {self.weight} on {self.member}>"

    @property
    def endpoint(self) -> Endpoint:
        """Where to send the request."""
        return self.member.state.endpoint


Verdict = Grant | Refusal
# A member's head that its endpoint's own limit admits, with the slots that it would take.
_Start = tuple["Member", Ticket, int]


class Observer:
    """Hears of changes. Every method may be overridden; none may call back into admission."""

    def limit_changed(self, endpoint: Endpoint, decision: Decision, now: float) -> None:
        """The limit law of `endpoint` moved."""

    def breaker_changed(self, endpoint: Endpoint, change: Change, now: float) -> None:
        """The breaker of `endpoint` went to another state."""


@dataclass(slots=True, eq=False, repr=False)
class Admission:
    """The whole decision, over every model, endpoint and room. Build one with `build.build`.

    Args:
        states: every endpoint by id.
        queues: by model and class.
        rooms: every room.
        max_overtakes: how many others may start before a member that waits with nothing in
            flight is next.
        observer: hears of limits and breakers.
    """

    states: Mapping[str, EndpointState]
    queues: Mapping[tuple[str, ServiceClass], Queue]
    rooms: Mapping[str, Room]
    max_overtakes: int = 8
    observer: Observer = field(default_factory=Observer)
    _live: set[Grant] = field(default_factory=set)
    # Endpoints that asked to be left alone for a while.
    _held: set[EndpointState] = field(default_factory=set)
    # Rooms where something may have become startable.
    _dirty: dict[Room, None] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Admission: {self.live} live, {list(self.rooms.values())}>"

    def request(self, ticket: Ticket, now: float) -> list[Verdict]:
        """Ask for a slot. Without a verdict on `ticket` in the answer, it waits."""
        queue = self.queues.get((ticket.model, ticket.service_class))
        if queue is None:
            return [Refusal(ticket, Reason.UNKNOWN_MODEL)]
        refusal = self._refusal(queue, ticket, now)
        if refusal is not None:
            return [refusal]
        queue.join(ticket)
        self._attend(queue)
        return self._settle(now)

    def cancel(self, ticket: Ticket, now: float) -> list[Verdict]:
        """Forget a ticket that waits; nothing happens if it does not wait any more."""
        queue = self.queues.get((ticket.model, ticket.service_class))
        if queue is None or ticket not in queue:
            return []
        queue.leave(ticket)
        self._attend(queue)  # whoever was behind it may fit
        return self._settle(now)

    def timing(self, grant: Grant, timing: Timing, now: float) -> list[Verdict]:
        """Fold in a reading of a request that still runs (its first token)."""
        state = grant.member.state
        self._read(state, timing, grant.at, now)
        return self._revisit(state, now)

    def release(self, grant: Grant, ending: Ending, now: float) -> list[Verdict]:
        """Give a slot back, and tell how its request ended.

        Raises:
            ValueError: this grant has been released before.
        """
        if grant not in self._live:
            raise ValueError(f"a slot of {grant.endpoint.id!r} was released twice")
        self._live.remove(grant)
        state = grant.member.state
        self._learn(state, grant, ending, now)
        state.inflight -= grant.weight
        grant.member.room.give_back(grant.member, grant.weight)
        return self._revisit(state, now)

    def signal(self, endpoint_id: str, signal: Signal | None, now: float) -> list[Verdict]:
        """Fold in what an engine says of itself; None means that it could not be read."""
        state = self.states[endpoint_id]
        if signal is not None:
            state.signal = signal
        self._moved(state, state.law.on_signal(signal, now=now), now)
        return self._revisit(state, now)

    def set_budget(self, room: Room, budget: int, now: float) -> list[Verdict]:
        """Move a budget, live. What is in flight stays; below it, nothing more is admitted.

        Raises:
            ValueError: the floors of the room's members add up to more.
        """
        room.set_budget(budget)
        self._dirty[room] = None
        return self._settle(now)

    def set_bounds(self, endpoint_id: str, floor: int, ceiling: int, now: float) -> list[Verdict]:
        """Move an endpoint's floor and ceiling, live. What is in flight stays.

        Raises:
            ValueError: the floors of the room's members would add up to more than its budget.
        """
        state = self.states[endpoint_id]
        state.native.room.set_floor(state.native, floor)
        self._moved(state, state.law.resize(floor=floor, ceiling=ceiling), now)
        return self._revisit(state, now)

    def tick(self, now: float) -> list[Verdict]:
        """Look again: something that time alone changes may have changed (see `wake_at`)."""
        return [v for state in self.states.values() for v in self._revisit(state, now)]

    def wake_at(self, now: float) -> float | None:
        """When `tick` is worth calling although nothing else happens, if ever."""
        if not self._held:
            return None
        self._held = {s for s in self._held if s.held_until > now}
        return min((s.held_until for s in self._held if s.waiting), default=None)

    @property
    def live(self) -> int:
        """How many grants are out."""
        return len(self._live)

    # -- what follows from an event ----------------------------------------------------------

    def _revisit(self, state: EndpointState, now: float) -> list[Verdict]:
        """Start and refuse what may be, after `state` changed."""
        out: list[Verdict] = []
        self._look(state, now)
        if not state.usable:
            self._flush(state, now, out)
        for member in state.members:
            member.room.refresh(member)
            member.room.enlist(member)
        self._dirty[state.native.room] = None
        return self._settle(now, out)

    def _settle(self, now: float, out: list[Verdict] | None = None) -> list[Verdict]:
        """Start whatever may start in the rooms where something changed."""
        out = [] if out is None else out
        while self._dirty:
            room, _ = self._dirty.popitem()
            while (found := self._next(room, now, out)) is not None:
                out.append(self._grant(*found, now, out))
        return out

    @staticmethod
    def _look(state: EndpointState, now: float) -> None:
        was = state.usable
        state.look(now)
        if state.usable is not was:
            for member in state.members:
                member.room.refresh(member)

    def _learn(self, state: EndpointState, grant: Grant, ending: Ending, now: float) -> None:
        for timing in ending.timings:
            self._read(state, timing, grant.at, now)
        decision = state.law.on_end(
            ending.outcome, started_at=grant.at, inflight=state.inflight, now=now
        )
        self._moved(state, decision, now)
        state.served(ending.outcome, now - grant.at)
        if ending.retry_after_s and ending.outcome is Outcome.CONGESTION:
            state.held_until = max(state.held_until, now + ending.retry_after_s)
            self._held.add(state)
        change = state.breaker.end(grant.pass_, ending.outcome, now)
        if change is not None:
            self.observer.breaker_changed(state.endpoint, change, now)
            if change.after is BreakerState.CLOSED:
                self._moved(state, state.law.restart(now=now), now)

    def _read(self, state: EndpointState, timing: Timing, started_at: float, now: float) -> None:
        decision = state.law.on_timing(
            timing, started_at=started_at, inflight=state.inflight, now=now
        )
        self._moved(state, decision, now)

    def _moved(self, state: EndpointState, decision: Decision | None, now: float) -> None:
        if decision is not None:
            self.observer.limit_changed(state.endpoint, decision, now)

    def _flush(self, state: EndpointState, now: float, out: list[Verdict]) -> None:
        """Refuse whoever waits for an endpoint that has gone, unless another one serves them."""
        for member in state.members:
            queue = member.queue
            if not member.waiting or any(not m.state.broken(now) for m in queue.members):
                continue
            reason, retry_after_s = self._why_broken(queue, now)
            for ticket in tuple(queue):
                queue.leave(ticket)
                out.append(Refusal(ticket, reason, retry_after_s))
            self._attend(queue)

    # -- refusing ------------------------------------------------------------------------------

    def _refusal(self, queue: Queue, ticket: Ticket, now: float) -> Refusal | None:
        if ticket.deadline <= now:
            return Refusal(ticket, Reason.DEADLINE)
        for member in queue.members:
            self._look(member.state, now)
        if all(m.state.broken(now) for m in queue.members):
            return Refusal(ticket, *self._why_broken(queue, now))
        if all((most := m.room.most(m)) is not None and most < 1 for m in queue.members):
            return Refusal(ticket, Reason.NO_ROOM)
        if not queue.has_space_for(ticket):
            return Refusal(ticket, Reason.QUEUE_FULL, self._wait_s(queue))
        return None

    @staticmethod
    def _why_broken(queue: Queue, now: float) -> tuple[Reason, float]:
        """What keeps every endpoint of `queue` away, and when to try again."""
        states = [m.state for m in queue.members]
        asleep = [s for s in states if s.signal and s.signal.state is EngineState.ASLEEP]
        if len(asleep) == len(states):
            return Reason.ASLEEP, _ENGINE_RETRY_S
        if all(not s.engine_serves for s in states):
            return Reason.LOADING, _ENGINE_RETRY_S
        soonest = min(s.breaker.retry_after_s(now) for s in states if s.engine_serves)
        return Reason.UNAVAILABLE, max(1.0, soonest)

    @staticmethod
    def _wait_s(queue: Queue) -> float:
        """Roughly how long a full queue takes to serve what waits in it now, seconds."""
        rate = sum(m.state.limit / m.state.service_s for m in queue.members if m.state.service_s)
        wait = ceil(len(queue) / rate) if rate else 1
        return min(max(wait, 1), _LONGEST_RETRY_AFTER_S)

    # -- lining up -----------------------------------------------------------------------------

    def _attend(self, queue: Queue) -> None:
        """Line up wherever it may matter that `queue` has another head, or none."""
        for member in queue.members:
            member.room.refresh(member)
            member.room.enlist(member)
            # What the head held back at its own endpoint's limit may go now.
            member.room.enlist(member.sibling)
        for member in sorted(queue.members, key=_load, reverse=True):
            self._dirty[member.room] = None  # the last in is settled first: where most is free

    def _head(self, queue: Queue, now: float, out: list[Verdict]) -> Ticket | None:
        """The first ticket whose deadline has not passed; the others leave."""
        while (head := queue.head) is not None and head.deadline <= now:
            queue.leave(head)
            out.append(Refusal(head, Reason.DEADLINE))
            self._attend(queue)
        return head

    # -- granting ------------------------------------------------------------------------------

    def _next(self, room: Room, now: float, out: list[Verdict]) -> _Start | None:
        """What may start in `room` now, first things first."""
        turn = room.turn(self.max_overtakes)
        while turn is not None and self._head(turn.queue, now, out) is None:
            turn = room.turn(self.max_overtakes)  # it waited for too long, and has left
        gathering = False  # the holder of the turn lacks only room, so nobody else takes any
        if turn is not None and (start := self._startable(turn, turn, now, out)):
            if room.fits(turn, start[2], on_turn=True):
                return start
            gathering = True
        if start := self._hungry(room, turn, now, out, priority=True):
            return start
        if gathering:
            return None
        for line in (room.interactive, room.best_effort):
            first = self._front(line, turn, now, out)
            if first and room.fits(first[0], first[2]):
                return first
            if line is room.interactive and (
                start := self._hungry(room, turn, now, out, priority=False)
            ):
                return start
            if first:
                # It lacks only room, and whoever is behind it gets none: R4, if it is interactive;
                # if it is a heavy best-effort request, it gathers room.
                break
        return None if room.inflight else self._alone(room, now, out)

    def _alone(self, room: Room, now: float, out: list[Verdict]) -> _Start | None:
        """The one that waited longest, in an empty room where each waits for the others' floors."""
        member = room.turn(0)
        start = self._startable(member, member, now, out) if member else None
        return start if start and room.fits(start[0], start[2], on_turn=True) else None

    def _hungry(
        self, room: Room, turn: Member | None, now: float, out: list[Verdict], *, priority: bool
    ) -> _Start | None:
        """What may start of the members below their floor."""
        for member in tuple(room.hungry) if room.hungry else ():
            if member.priority is priority:
                start = self._startable(member, turn, now, out)
                if start and room.fits(member, start[2]):
                    return start
        return None

    def _front(
        self, line: Line, turn: Member | None, now: float, out: list[Verdict]
    ) -> _Start | None:
        """The first in line that its own endpoint would admit; others leave the line."""
        while line:
            key, index, member = line[0]
            start = self._startable(member, turn, now, out)
            if start is None:
                heappop(line)
                member.lined_up = False
                continue
            true_key = member.room.key(member)
            if true_key > key:
                heapreplace(line, (true_key, index, member))
                continue
            return start
        return None

    def _startable(
        self, member: Member, turn: Member | None, now: float, out: list[Verdict]
    ) -> _Start | None:
        """R1: the head that `member`'s own endpoint would admit, with its weight."""
        state = member.state
        ticket = self._head(member.queue, now, out)
        if ticket is None or not state.usable:
            return None
        limit, sibling = state.limit, member.sibling
        reserve = max(0, min(sibling.floor, limit - 1) - sibling.inflight)
        if not member.interactive:
            limit -= reserve if sibling.priority else 0
            if sibling.waiting and member is not turn and member.inflight >= member.floor:
                return None  # interactive first, where both share the endpoint's limit
        elif turn is sibling and member.inflight >= min(member.floor, limit - 1):
            return None
        weight = self._weight(member, ticket, limit)
        if state.inflight + weight > limit:
            return None
        return member, ticket, weight

    @staticmethod
    def _weight(member: Member, ticket: Ticket, limit: int) -> int:
        """What the ticket asks for, capped at what its member could ever hold: it runs alone."""
        weight = _asked(member, ticket)
        if weight <= 1:
            return 1
        most = member.room.most(member)
        return max(1, min(weight, limit, most if most is not None else weight))

    def _grant(
        self, member: Member, ticket: Ticket, weight: int, now: float, out: list[Verdict]
    ) -> Grant:
        state, queue = member.state, member.queue
        queue.leave(ticket)
        state.inflight += weight
        member.room.take(member, weight)
        grant = Grant(ticket, member, weight, now, state.breaker.begin(now))
        self._live.add(grant)
        if not queue or _asked(member, ticket) > 1:  # a lighter head may fit where it did not
            self._attend(queue)
        else:
            member.room.enlist(member.sibling)
        if grant.pass_.probe:  # it alone tries the endpoint; the others do not wait for it
            self._look(state, now)
            self._flush(state, now, out)
        return grant


def _asked(member: Member, ticket: Ticket) -> int:
    return ticket.weight or member.state.endpoint.slot_weight


def _load(member: Member) -> float:
    return member.state.inflight / member.state.limit
