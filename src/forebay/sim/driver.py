"""Admission on virtual time: the counterpart of `forebay.drivers.limiter` without tasks.

It makes the same calls of the same core: `request`, `cancel` at the deadline, `timing`, `release`,
`signal`, and `tick` at `wake_at`. Where asyncio's driver wakes a task, this one calls an `Asker`,
which must not call back before it returns: whatever follows is an event of its own.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

from forebay.core.model import Reason, Refusal, Ticket

if TYPE_CHECKING:
    from forebay.core.admission import Admission, Grant, Verdict
    from forebay.core.model import Ending, Endpoint, Signal, Timing
    from forebay.sim.world import Event, World


class Asker(Protocol):
    """Who wants a slot."""

    def granted(self, grant: Grant) -> None:
        """It has one now."""

    def refused(self, refusal: Refusal) -> None:
        """It will not get one."""


class VirtualLimiter:
    """Hands the slots of an `Admission` to askers.

    Args:
        admission: decides.
        world: its clock is the only clock.
    """

    def __init__(self, admission: Admission, world: World) -> None:
        self.admission = admission
        self._world = world
        self._waiters: dict[Ticket, Asker] = {}
        self._deadlines: dict[Ticket, Event] = {}
        self._wake_up: Event | None = None

    def ask(self, ticket: Ticket, asker: Asker) -> None:
        """Ask for a slot; the answer comes at once or later, by the ticket's deadline."""
        self._waiters[ticket] = asker
        self._carry_out(self.admission.request(ticket, self._world.now))
        if ticket.deadline < inf and ticket in self._waiters:
            self._deadlines[ticket] = self._world.at(ticket.deadline, self._expire, ticket)

    def waits(self, ticket: Ticket) -> bool:
        """Whether a ticket has not been answered yet."""
        return ticket in self._waiters

    def report(self, grant: Grant, timing: Timing) -> None:
        """Pass on a reading of a request that still runs."""
        self._carry_out(self.admission.timing(grant, timing, self._world.now))

    def give_back(self, grant: Grant, ending: Ending) -> None:
        """Give a slot back."""
        self._carry_out(self.admission.release(grant, ending, self._world.now))

    def signal(self, endpoint_id: str, signal: Signal | None) -> None:
        """Pass on what an engine says of itself; None means that it could not be read."""
        self._carry_out(self.admission.signal(endpoint_id, signal, self._world.now))

    def add(self, endpoint: Endpoint) -> None:
        """Put an endpoint in, or let one that drains serve again."""
        self._carry_out(self.admission.add(endpoint, self._world.now))

    def drain(self, endpoint_id: str) -> None:
        """Let an endpoint finish what it has, and give it nothing more."""
        self._carry_out(self.admission.drain(endpoint_id, self._world.now))

    def remove(self, endpoint_id: str) -> None:
        """Take an endpoint out, of which nothing runs any more."""
        self._carry_out(self.admission.remove(endpoint_id, self._world.now))

    def set_bounds(self, endpoint_id: str, floor: int, ceiling: int) -> None:
        """Move an endpoint's floor and ceiling, live."""
        now = self._world.now
        self._carry_out(self.admission.set_bounds(endpoint_id, floor, ceiling, now))

    def set_budget(self, group: str, budget: int | None) -> None:
        """Move a GPU group's budget, live; None takes it away."""
        self._carry_out(self.admission.set_budget(group, budget, self._world.now))

    def _expire(self, ticket: Ticket) -> None:
        self._answer(Refusal(ticket, Reason.DEADLINE))
        self._carry_out(self.admission.cancel(ticket, self._world.now))

    def _carry_out(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            self._answer(verdict)
        if self._waiters:
            self._set_wake_up()

    def _answer(self, verdict: Verdict) -> None:
        ticket = verdict.ticket
        asker = self._waiters.pop(ticket)
        if self._deadlines:
            deadline = self._deadlines.pop(ticket, None)
            if deadline is not None:
                deadline.cancel()
        if isinstance(verdict, Refusal):
            asker.refused(verdict)
        else:
            asker.granted(verdict)

    def _set_wake_up(self) -> None:
        """See to it that what waits for nothing but time is looked at in time."""
        at = self.admission.wake_at(self._world.now)
        if at is None or (self._wake_up is not None and self._wake_up.at <= at):
            return
        if self._wake_up is not None:
            self._wake_up.cancel()
        self._wake_up = self._world.at(at, self._tick)

    def _tick(self) -> None:
        self._wake_up = None
        self._carry_out(self.admission.tick(self._world.now))
