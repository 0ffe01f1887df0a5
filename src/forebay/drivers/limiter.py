"""Admission for tasks and threads: it puts them to sleep and wakes them."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from forebay.core.model import Ticket
from forebay.drivers.hand_over import HandOver
from forebay.drivers.lease import Lease
from forebay.drivers.waiters import Nobody, TaskWaiter, ThreadWaiter
from forebay.errors import Rejected

if TYPE_CHECKING:
    from forebay.core.model import Ending, Endpoint, ServiceClass, Signal, Timing
    from forebay.drivers.waiters import Waiter


class Limiter(HandOver):
    """Hands the slots of an `Admission` to tasks of any event loop, and to threads."""

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
