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

# A task, or the thread where no loop runs.
Holder: TypeAlias = asyncio.Task[Any] | threading.Thread


def holder() -> Holder:
    """Who runs this."""
    task = asyncio.current_task() if running_loop() is not None else None
    return task or threading.current_thread()


class _Held:
    """The slots that one holder has.

    It keeps neither that one nor its leases alive: a lease that was dropped is collected, with
    whoever dropped it, and gives its slot back.
    """

    __slots__ = ("_holder", "leases", "waits_for")

    def __init__(self, who: Holder) -> None:
        self._holder = weakref.ref(who)
        self.leases: dict[Grant, weakref.ref[Lease]] = {}
        self.waits_for: Ticket | None = None

    def is_of(self, who: Holder) -> bool:
        return self._holder() is who


class Holders:
    """The tasks and threads that hold slots of one session.

    Args:
        admission: decides; it is only looked at.
        lock: of whoever changes that.
    """

    def __init__(self, admission: Admission, lock: threading.RLock) -> None:
        self._admission = admission
        self._lock = lock
        self._held: dict[int, _Held] = {}  # by the holder's identity

    def add(self, who: Holder, grant: Grant, lease: Lease) -> None:
        """`who` runs the block of `lease` from now on."""
        with self._lock:
            held = self._held.get(id(who))
            if held is None or not held.is_of(who):  # or of one that is gone, and had its identity
                held = self._held[id(who)] = _Held(who)
            held.leases[grant] = weakref.ref(lease)

    def remove(self, key: int, grant: Grant) -> None:
        """The block has ended; `key` is its holder's identity."""
        with self._lock:
            held = self._held.get(key)
            if held is None or grant not in held.leases:
                return
            del held.leases[grant]
            if not held.leases:
                del self._held[key]

    def innermost(self) -> Lease | None:
        """The lease that whoever runs this took last of those that it holds."""
        with self._lock:
            held = self._of(holder())
            leases = reversed(held.leases.values()) if held else ()
            return next((lease for ref in leases if (lease := ref())), None)

    @contextmanager
    def asking(self, ticket: Ticket) -> Iterator[None]:
        """Whoever runs this waits for `ticket` while in the block.

        Raises:
            UsageError: it would wait for ever.
        """
        held = self._of(holder())
        if held is None:  # nearly always; only whoever runs this could change it
            yield
            return
        try:
            with self._lock:
                held.waits_for = ticket
                stuck = held in self._deadlocked()
            if stuck:
                raise UsageError(
                    f"this task asks for a slot of {ticket.model!r}, which can never be free while "
                    "slots are held by tasks that wait for another one, this task among them: "
                    "leave the first block before asking again, or use one slot for both requests"
                )
            yield
        finally:
            held.waits_for = None

    def _of(self, who: Holder) -> _Held | None:
        held = self._held.get(id(who))
        return held if held is not None and held.is_of(who) else None

    def _deadlocked(self) -> list[_Held]:
        stuck = [held for held in self._held.values() if held.waits_for is not None]
        while True:
            # A lease that was dropped gives its slot back soon.
            grants = [
                grant
                for held in stuck
                for grant, lease in held.leases.items()
                if lease() is not None
            ]
            still = [held for held in stuck if not self._could_start(held.waits_for, grants)]
            if len(still) == len(stuck):
                return stuck
            stuck = still

    def _could_start(self, ticket: Ticket | None, held: Sequence[Grant]) -> bool:
        if ticket is None:
            return True  # it has got its slot meanwhile
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
