"""Admission for asyncio: it puts tasks to sleep and wakes them. Bound to one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING

from forebay.core.model import Ending, Outcome, Reason, Refusal, Ticket
from forebay.errors import Rejected

if TYPE_CHECKING:
    from forebay.core.admission import Admission, Grant, Verdict
    from forebay.core.model import Endpoint, ServiceClass, Signal, Timing

_MESSAGES = {
    Reason.QUEUE_FULL: "the queue of {model!r} is full",
    Reason.DEADLINE: "no slot for {model!r} became free before the deadline",
    Reason.UNAVAILABLE: "{model!r} has no healthy endpoint now",
    Reason.LOADING: "{model!r} is still being loaded",
    Reason.ASLEEP: "{model!r} is asleep: its engine has put it to sleep and must be woken",
    Reason.NO_ROOM: "the floors reserved on the GPU of {model!r} leave no room for this class",
    Reason.UNKNOWN_MODEL: "no model {model!r} is configured",
    Reason.SHUTTING_DOWN: "shutting down",
}

_CANCELLED = Ending(Outcome.CANCELLED)


class Lease:
    """A slot at `endpoint` that is held until `settle`, which only ever counts once."""

    __slots__ = ("_limiter", "endpoint", "grant", "queued_s", "settled")

    def __init__(self, limiter: AsyncLimiter, grant: Grant, queued_s: float = 0.0) -> None:
        self._limiter = limiter
        self.grant = grant
        self.endpoint: Endpoint = grant.endpoint
        self.queued_s = queued_s
        self.settled = False

    def __repr__(self) -> str:
        state = "settled" if self.settled else "held"
        return f"<Lease of {self.endpoint.id} {state}>"

    @property
    def is_probe(self) -> bool:
        """Whether this request tries an endpoint that was broken."""
        return self.grant.pass_.probe

    @property
    def probe_timeout_s(self) -> float:
        """How long a probe may go without an answer, seconds; infinity for other requests."""
        return self.grant.pass_.timeout_s

    def timing(self, timing: Timing) -> None:
        """Report a reading while the request still runs, e.g. its first token."""
        if not self.settled:
            self._limiter.report(self.grant, timing)

    def settle(self, ending: Ending) -> None:
        """Give the slot back. Every call but the first does nothing."""
        if self.settled:
            return
        self.settled = True
        self._limiter.give_back(self.grant, ending)


class AsyncLimiter:
    """Hands the slots of an `Admission` to tasks of one event loop.

    Args:
        admission: decides.
        loop: the loop that this limiter belongs to; its clock is the only clock.
    """

    def __init__(self, admission: Admission, loop: asyncio.AbstractEventLoop) -> None:
        self.admission = admission
        self._loop = loop
        self._waiters: dict[Ticket, asyncio.Future[Grant]] = {}
        self._wake_up: asyncio.Handle | None = None
        self._wakes_at = inf  # of `_wake_up`; uvloop's handle of a short time does not tell
        self._closed = False
        # Endpoints that drain, with who waits for that.
        self._emptying: dict[str, asyncio.Future[None]] = {}

    def now(self) -> float:
        """The time, seconds, on the clock that tickets and deadlines use."""
        return self._loop.time()

    def ticket(
        self,
        model: str,
        service_class: ServiceClass,
        *,
        timeout_s: float,
        weight: int = 0,
        size_bytes: int = 0,
    ) -> Ticket:
        """Make a ticket that asks from now on, for at most `timeout_s`."""
        now = self._loop.time()
        return Ticket(model, service_class, now, now + timeout_s, weight, size_bytes)

    def try_slot(self, ticket: Ticket) -> Lease | None:
        """Take a slot if one is free at once; never waits.

        Raises:
            Rejected: there will be none, whether one waits or not.
        """
        grant = self._ask(ticket)
        if isinstance(grant, asyncio.Future):
            del self._waiters[ticket]
            self._carry_out(self.admission.cancel(ticket, self._loop.time()))
            return None
        return Lease(self, grant)

    async def slot(self, ticket: Ticket) -> Lease:
        """Take a slot, and wait for one until the ticket's deadline.

        Raises:
            Rejected: no slot; `reason` tells why.
        """
        found = self._ask(ticket)
        if not isinstance(found, asyncio.Future):
            return Lease(self, found)
        asked_at = self._loop.time()  # not the ticket's: it may have had a slot before
        grant = await self._wait(ticket, found)
        return Lease(self, grant, max(0.0, grant.at - asked_at))

    def report(self, grant: Grant, timing: Timing) -> None:
        """See `Lease.timing`."""
        self._carry_out(self.admission.timing(grant, timing, self._loop.time()))

    def give_back(self, grant: Grant, ending: Ending) -> None:
        """See `Lease.settle`."""
        self._carry_out(self.admission.release(grant, ending, self._loop.time()))
        if self._emptying:
            self._note_empty(grant.endpoint.id)

    def signal(self, endpoint_id: str, signal: Signal | None) -> None:
        """Pass on what an engine says of itself; None means that it could not be read.

        One that has been taken out in the meantime says nothing any more.
        """
        if endpoint_id not in self.admission.states:
            return
        self._carry_out(self.admission.signal(endpoint_id, signal, self._loop.time()))

    # -- what changes while it runs: see the methods of `Admission` of the same names --------------

    def add(self, endpoint: Endpoint) -> None:
        """Put an endpoint in, or let one that drains serve again."""
        self._carry_out(self.admission.add(endpoint, self._loop.time()))

    def drain(self, endpoint_id: str) -> None:
        """Let an endpoint finish what it has, and give it nothing more."""
        self._carry_out(self.admission.drain(endpoint_id, self._loop.time()))

    async def empty(self, endpoint_id: str) -> None:
        """Wait until nothing runs any more at an endpoint that drains. One may wait for each."""
        if self.admission.states[endpoint_id].live:
            waiter = self._emptying[endpoint_id] = self._loop.create_future()
            try:
                await waiter
            finally:
                if self._emptying[endpoint_id] is waiter:
                    del self._emptying[endpoint_id]

    def remove(self, endpoint_id: str) -> None:
        """Take an endpoint out, of which nothing runs any more."""
        self._carry_out(self.admission.remove(endpoint_id, self._loop.time()))

    def set_budget(self, group: str, budget: int | None) -> None:
        """Move the budget of a GPU group; None takes it away."""
        self._carry_out(self.admission.set_budget(group, budget, self._loop.time()))

    def set_bounds(self, endpoint_id: str, floor: int, ceiling: int) -> None:
        """Move an endpoint's floor and ceiling."""
        now = self._loop.time()
        self._carry_out(self.admission.set_bounds(endpoint_id, floor, ceiling, now))

    def change(self, endpoint: Endpoint) -> None:
        """Give an endpoint other settings."""
        self._carry_out(self.admission.change(endpoint, self._loop.time()))

    def move(self, endpoint_id: str, group: str) -> None:
        """Let an endpoint be on another GPU; `change` gives it its floor there."""
        self._carry_out(self.admission.move(endpoint_id, group, self._loop.time()))

    def close(self) -> None:
        """Refuse whoever waits or comes. What runs goes on."""
        self._closed = True
        waiting = list(self._waiters)
        for ticket in waiting:
            self._refuse(Refusal(ticket, Reason.SHUTTING_DOWN, 1))
        for ticket in waiting:
            self._carry_out(self.admission.cancel(ticket, self._loop.time()))
        if self._wake_up is not None:
            self._wake_up.cancel()

    def _note_empty(self, endpoint_id: str) -> None:
        waiter = self._emptying.get(endpoint_id)
        if waiter is not None and not (waiter.done() or self.admission.states[endpoint_id].live):
            waiter.set_result(None)

    def _ask(self, ticket: Ticket) -> Grant | asyncio.Future[Grant]:
        """Ask for a slot: the grant if there is one at once, else what to wait for."""
        if self._closed:
            raise rejected(Refusal(ticket, Reason.SHUTTING_DOWN, 1))
        verdicts = self.admission.request(ticket, self._loop.time())
        if len(verdicts) == 1 and verdicts[0].ticket is ticket:  # nearly always, when not busy
            verdict = verdicts[0]
            if isinstance(verdict, Refusal):
                raise rejected(verdict)
            return verdict
        waiter = self._waiters[ticket] = self._loop.create_future()
        self._carry_out(verdicts)
        return waiter.result() if waiter.done() else waiter

    async def _wait(self, ticket: Ticket, waiter: asyncio.Future[Grant]) -> Grant:
        timer = None
        if ticket.deadline != inf:
            timer = self._loop.call_at(ticket.deadline, self._expire, ticket)
        try:
            return await waiter
        except BaseException:  # cancelled, refused, or its loop is being taken down
            self._abandon(ticket, waiter)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _abandon(self, ticket: Ticket, waiter: asyncio.Future[Grant]) -> None:
        if self._waiters.pop(ticket, None) is not None:
            self._carry_out(self.admission.cancel(ticket, self._loop.time()))
        elif not waiter.cancelled() and waiter.exception() is None:
            # Granted and cancelled in the same tick: the slot is ours to give back.
            self.give_back(waiter.result(), _CANCELLED)

    def _expire(self, ticket: Ticket) -> None:
        if ticket in self._waiters:
            self._refuse(Refusal(ticket, Reason.DEADLINE))
            self._carry_out(self.admission.cancel(ticket, self._loop.time()))

    def _carry_out(self, verdicts: list[Verdict]) -> None:
        if not verdicts and not self._waiters:  # nearly always, when not busy
            return
        # A list that grows: giving one slot back may grant the next. Many waiters may have been
        # cancelled at once, so this must not recurse.
        todo = deque(verdicts)
        while todo:
            verdict = todo.popleft()
            if isinstance(verdict, Refusal):
                self._refuse(verdict)
                continue
            waiter = self._waiters.pop(verdict.ticket, None)
            if waiter is None or waiter.done():  # gone: cancelled, and not yet run to say so
                todo.extend(self.admission.release(verdict, _CANCELLED, self._loop.time()))
            else:
                waiter.set_result(verdict)
        self._set_wake_up()

    def _refuse(self, refusal: Refusal) -> None:
        waiter = self._waiters.pop(refusal.ticket, None)
        if waiter is not None and not waiter.done():
            waiter.set_exception(rejected(refusal))

    def _set_wake_up(self) -> None:
        """See to it that what waits for nothing but time is looked at in time."""
        at = self.admission.wake_at(self._loop.time()) if self._waiters else None
        if at is None or self._wakes_at <= at:
            return
        if self._wake_up is not None:
            self._wake_up.cancel()
        self._wakes_at = at
        self._wake_up = self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._wake_up, self._wakes_at = None, inf
        self._carry_out(self.admission.tick(self._loop.time()))


def rejected(refusal: Refusal) -> Rejected:
    """The error that tells a caller of a refusal."""
    message = _MESSAGES[refusal.reason].format(model=refusal.ticket.model)
    return Rejected(refusal.reason, message, refusal.retry_after_s)
