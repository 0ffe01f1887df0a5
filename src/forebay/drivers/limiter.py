"""Admission for tasks and threads: it puts them to sleep and wakes them."""

from __future__ import annotations

from collections import deque
from functools import partial
from math import inf
from threading import RLock
from typing import TYPE_CHECKING, TypeVar

from forebay.core.model import Ending, Outcome, Reason, Refusal, Ticket
from forebay.drivers.alarm import Alarm
from forebay.drivers.lease import Lease
from forebay.drivers.rejection import rejected
from forebay.drivers.waiters import Nobody, TaskWaiter, ThreadWaiter
from forebay.errors import Rejected

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from forebay.core.admission import Admission, Grant, Verdict
    from forebay.core.model import Endpoint, ServiceClass, Signal, Timing
    from forebay.drivers.waiters import Answer, Waiter

Asker = TypeVar("Asker", bound="Waiter")

_CANCELLED = Ending(Outcome.CANCELLED)


class Limiter:
    """Hands the slots of an `Admission` to tasks of any event loop, and to threads.

    Everything happens under one lock, for the few microseconds of a decision. What waits for
    nothing but time is looked after by the loop that the limiter belongs to: while that is blocked,
    it waits longer.

    Args:
        admission: decides. Whoever looks at it while other threads may ask does so with `lock`.
        loop: the one that runs in this thread, to which the limiter belongs.
        clock: seconds, the only clock; None: the loop's, which other threads must not read unless
            it is the machine's (uvloop's belongs to its thread).

    Attributes:
        lock: held while something changes.
    """

    def __init__(
        self,
        admission: Admission,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.admission = admission
        self.lock = RLock()
        self.now = clock or loop.time
        self._loop = loop
        self._alarm = Alarm(loop, self.now, self.lock, self._tick)
        self._waiters: dict[Ticket, Waiter] = {}
        self._closed = False
        # Endpoints that drain, with who waits for that.
        self._emptying: dict[str, asyncio.Future[None]] = {}

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
        now = self.now()
        return Ticket(model, service_class, now, now + timeout_s, weight, size_bytes)

    def try_slot(self, ticket: Ticket) -> Lease | None:
        """Take a slot if one is free at once; never waits.

        Raises:
            Rejected: there will be none, whether one waits or not.
        """
        with self.lock:
            found = self._ask(ticket, Nobody)
            if isinstance(found, Nobody):
                del self._waiters[ticket]
                self._carry_out(self.admission.cancel(ticket, self.now()))
                return None
        return Lease(self, found)

    async def slot(self, ticket: Ticket) -> Lease:
        """Take a slot, and let this task wait for one until the ticket's deadline.

        Raises:
            Rejected: no slot; `reason` tells why.
        """
        with self.lock:
            found = self._ask(ticket, TaskWaiter)
        if not isinstance(found, TaskWaiter):
            return Lease(self, found)
        asked_at = self.now()  # not the ticket's: it may have had a slot before
        timer = None
        if ticket.deadline != inf:
            timer = found.loop.call_later(ticket.deadline - asked_at, self._expire, ticket)
        try:
            await found.future
        except GeneratorExit:  # collected, with its loop
            self.later(partial(self._abandon, ticket, found))
            raise
        except BaseException:
            self._abandon(ticket, found)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return self._leased(found, asked_at)

    def slot_sync(self, ticket: Ticket) -> Lease:
        """Take a slot, and block this thread until there is one, or until the ticket's deadline.

        Raises:
            Rejected: no slot; `reason` tells why.
        """
        waiter, asked_at = ThreadWaiter(), self.now()
        try:
            with self.lock:
                found = self._ask(ticket, lambda: waiter)
            if not isinstance(found, ThreadWaiter):
                return Lease(self, found)
            waiter.sleep(ticket.deadline - asked_at)
            self._expire(ticket)
            return self._leased(waiter, asked_at)
        except BaseException:  # refused; or a signal's handler raised
            self._abandon(ticket, waiter)
            raise

    def report(self, lease: Lease, timing: Timing) -> None:
        """See `Lease.timing`."""
        with self.lock:
            if not lease.settled:
                self._carry_out(self.admission.timing(lease.grant, timing, self.now()))

    def give_back(self, lease: Lease, ending: Ending) -> None:
        """See `Lease.settle`."""
        with self.lock:
            if not lease.settled:
                lease.settled = True
                self._release(lease.grant, ending)

    def later(self, do: Callable[[], object]) -> None:
        """Have the loop do something soon; for finalizers, which must not wait for the lock.

        They run in whatever thread the collector happens to run, perhaps in the middle of a
        decision.
        """
        self._alarm.in_loop(do)

    def signal(self, endpoint_id: str, signal: Signal | None) -> None:
        """Pass on what an engine says of itself; None means that it could not be read.

        One that has been taken out in the meantime says nothing any more.
        """
        with self.lock:
            if endpoint_id in self.admission.states:
                self._carry_out(self.admission.signal(endpoint_id, signal, self.now()))

    # -- what changes while it runs: see the methods of `Admission` of the same names --------------

    def add(self, endpoint: Endpoint) -> None:
        """Put an endpoint in, or let one that drains serve again."""
        with self.lock:
            self._carry_out(self.admission.add(endpoint, self.now()))

    def drain(self, endpoint_id: str) -> None:
        """Let an endpoint finish what it has, and give it nothing more."""
        with self.lock:
            self._carry_out(self.admission.drain(endpoint_id, self.now()))

    async def empty(self, endpoint_id: str) -> None:
        """Wait until nothing runs any more at an endpoint that drains. One may wait for each."""
        with self.lock:
            if not self.admission.states[endpoint_id].live:
                return
            waiter = self._emptying[endpoint_id] = self._loop.create_future()
        try:
            await waiter
        finally:
            self.later(partial(self._forget, endpoint_id, waiter))

    def remove(self, endpoint_id: str) -> None:
        """Take an endpoint out, of which nothing runs any more."""
        with self.lock:
            self._carry_out(self.admission.remove(endpoint_id, self.now()))

    def set_budget(self, group: str, budget: int | None) -> None:
        """Move the budget of a GPU group; None takes it away."""
        with self.lock:
            self._carry_out(self.admission.set_budget(group, budget, self.now()))

    def set_bounds(self, endpoint_id: str, floor: int, ceiling: int) -> None:
        """Move an endpoint's floor and ceiling."""
        with self.lock:
            self._carry_out(self.admission.set_bounds(endpoint_id, floor, ceiling, self.now()))

    def change(self, endpoint: Endpoint) -> None:
        """Give an endpoint other settings."""
        with self.lock:
            self._carry_out(self.admission.change(endpoint, self.now()))

    def move(self, endpoint_id: str, group: str) -> None:
        """Let an endpoint be on another GPU; `change` gives it its floor there."""
        with self.lock:
            self._carry_out(self.admission.move(endpoint_id, group, self.now()))

    def close(self) -> None:
        """Refuse whoever waits or comes. What runs goes on."""
        with self.lock:
            self._closed = True
            waiting = list(self._waiters)
            for ticket in waiting:
                self._refuse(Refusal(ticket, Reason.SHUTTING_DOWN, 1))
            for ticket in waiting:
                self._carry_out(self.admission.cancel(ticket, self.now()))
            self._alarm.clear()

    # -- all of this with the lock -----------------------------------------------------------------

    def _ask(self, ticket: Ticket, make: Callable[[], Asker]) -> Grant | Asker:
        """Ask for a slot: the grant if there is one at once, else who waits for it.

        Raises:
            Rejected: there is none.
        """
        if self._closed:
            raise rejected(Refusal(ticket, Reason.SHUTTING_DOWN, 1))
        verdicts = self.admission.request(ticket, self.now())
        if len(verdicts) == 1 and verdicts[0].ticket is ticket:  # nearly always, when not busy
            verdict = verdicts[0]
            if isinstance(verdict, Refusal):
                raise rejected(verdict)
            return verdict
        waiter = self._waiters[ticket] = make()
        self._carry_out(verdicts)
        if isinstance(waiter.answer, Rejected):
            raise waiter.answer
        return waiter.answer or waiter

    def _leased(self, waiter: Waiter, asked_at: float) -> Lease:
        """What came of waiting.

        Raises:
            Rejected: no slot.
        """
        answer = waiter.answer
        assert answer is not None  # noqa: S101 - it has been woken
        if isinstance(answer, Rejected):
            raise answer
        return Lease(self, answer, max(0.0, answer.at - asked_at))

    def _abandon(self, ticket: Ticket, waiter: Waiter) -> None:
        """Whoever waited does so no more, and has not taken what it was told."""
        with self.lock:
            if self._waiters.pop(ticket, None) is not None:
                self._carry_out(self.admission.cancel(ticket, self.now()))
            elif waiter.answer is not None and not isinstance(waiter.answer, Rejected):
                # Granted and cancelled in the same tick: the slot is ours to give back.
                self._release(waiter.answer, _CANCELLED)

    def _expire(self, ticket: Ticket) -> None:
        with self.lock:
            if ticket in self._waiters:
                self._refuse(Refusal(ticket, Reason.DEADLINE))
                self._carry_out(self.admission.cancel(ticket, self.now()))

    def _release(self, grant: Grant, ending: Ending) -> None:
        self._carry_out(self.admission.release(grant, ending, self.now()))
        if self._emptying:
            id_ = grant.endpoint.id
            waiter = self._emptying.get(id_)
            if waiter is not None and not self.admission.states[id_].live:
                self._alarm.in_loop(partial(_finish, waiter))

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
            if waiter is None or not _told(waiter, verdict):
                todo.extend(self.admission.release(verdict, _CANCELLED, self.now()))
        self._set_alarm()

    def _refuse(self, refusal: Refusal) -> None:
        waiter = self._waiters.pop(refusal.ticket, None)
        if waiter is not None:
            _told(waiter, rejected(refusal))

    def _forget(self, endpoint_id: str, waiter: asyncio.Future[None]) -> None:
        """Nobody waits for that any more."""
        with self.lock:
            if self._emptying.get(endpoint_id) is waiter:
                del self._emptying[endpoint_id]

    def _set_alarm(self) -> None:
        """See to it that what waits for nothing but time is looked at in time."""
        at = self.admission.wake_at(self.now()) if self._waiters else None
        if at is not None:
            self._alarm.set(at)

    def _tick(self) -> None:
        self._carry_out(self.admission.tick(self.now()))


def _told(waiter: Waiter, answer: Answer) -> bool:
    """Tell a waiter; False if it is gone."""
    waiter.answer = answer
    if waiter.wake():
        return True
    waiter.answer = None
    return False


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
