"""Who holds slots while asking for another one: the way into a deadlock, found before it closes.

Theory of operation. A task (or a thread) that holds a slot and waits for another one gives nothing
back until it gets it. If what such tasks hold leaves no room for what they wait for, none of them
ever goes on. So when a task asks, take all tasks that hold and wait, with it; strike out whoever
could start if nothing but what the others of them hold were in flight; repeat. Whoever is left
waits for ever.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from forebay.client.home import running_loop
from forebay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from forebay.client.lease import Lease
    from forebay.core.admission import Admission, Grant
    from forebay.core.member import Member
    from forebay.core.model import Ticket
    from forebay.drivers.lock import PostLock

# A task, or the thread where no loop runs.
Holder: TypeAlias = asyncio.Task[Any] | threading.Thread


def holder() -> Holder:
    """Who runs this."""
    task = asyncio.current_task() if running_loop() is not None else None
    return task or threading.current_thread()


class Holders:
    """The tasks and threads that hold slots of one session.

    Args:
        admission: decides; it is only looked at.
        lock: of whoever changes that.
    """

    def __init__(self, admission: Admission, lock: PostLock) -> None:
        self._admission = admission
        self._lock = lock
        # Weak, so that a lease that was dropped is collected, and gives its slot back.
        self._held: dict[Holder, dict[Grant, weakref.ref[Lease]]] = {}
        self._asking: dict[Holder, Ticket] = {}

    def add(self, holder: Holder, grant: Grant, lease: Lease) -> None:
        """`holder` runs the block of `lease` from now on."""
        with self._lock:
            self._held.setdefault(holder, {})[grant] = weakref.ref(lease)

    def remove(self, holder: Holder, grant: Grant) -> None:
        """The block has ended."""
        with self._lock:
            held = self._held.get(holder, {})
            held.pop(grant, None)
            if not held:
                self._held.pop(holder, None)

    def innermost(self) -> Lease | None:
        """The lease that whoever runs this took last of those that it holds."""
        with self._lock:
            held = self._held.get(holder(), {})
            return next((lease for ref in reversed(held.values()) if (lease := ref())), None)

    @contextmanager
    def asking(self, ticket: Ticket) -> Iterator[None]:
        """Whoever runs this waits for `ticket` while in the block.

        Raises:
            UsageError: it would wait for ever.
        """
        who = holder()
        if who not in self._held:  # only it could put itself there
            yield
            return
        try:
            with self._lock:
                self._asking[who] = ticket
                stuck = who in self._deadlocked()
            if stuck:
                raise UsageError(
                    f"this task asks for a slot of {ticket.model!r}, which can never be free while "
                    "slots are held by tasks that wait for another one, this task among them: "
                    "leave the first block before asking again, or use one slot for both requests"
                )
            yield
        finally:
            with self._lock:
                del self._asking[who]

    def _deadlocked(self) -> dict[Holder, Ticket]:
        stuck = dict(self._asking)
        while True:
            held = [grant for task in stuck for grant in self._held.get(task, ())]
            free = [task for task, ticket in stuck.items() if self._could_start(ticket, held)]
            if not free:
                return stuck
            for task in free:
                del stuck[task]

    def _could_start(self, ticket: Ticket, held: Sequence[Grant]) -> bool:
        queue = self._admission.queues.get((ticket.model, ticket.service_class))
        if queue is None:
            return True  # it will be told that there is no such model
        for member in queue.members:
            if not queue.may_take(member, ticket.avoid):
                continue
            asked = member.state.endpoint.slots_for(ticket)
            weight = max(1, min(asked, _free(member, ())))  # more than it could ever have: alone
            if weight <= _free(member, held):
                return True
        return False


def _free(member: Member, held: Sequence[Grant]) -> int:
    """The slots that `member` could take if nothing but `held` were in flight: R1, R2 and R3."""
    state, room, native = member.state, member.room, member.state.native

    def inflight(of: Member) -> int:
        return sum(grant.weight for grant in held if grant.member is of)

    # The law's limit; while the endpoint comes back from an outage, what it grants is less.
    limit = state.law.decision.limit
    free = limit - sum(inflight(each) for each in state.members)
    if not member.interactive and native.priority:
        free -= max(0, min(native.floor, limit - 1) - inflight(native))
    if room.budget is not None:
        others = [m for m in room.members if m.priority and m is not member]
        reserved = sum(max(0, other.floor - inflight(other)) for other in others)
        free = min(free, room.budget - reserved - sum(inflight(m) for m in room.members))
    return free
