"""What admission decides, carried out: whoever waits is told, whichever thread that comes from."""

from __future__ import annotations

from collections import deque
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, TypeVar

from forebay.core.model import Ending, Outcome, Reason, Refusal
from forebay.drivers.alarm import Alarm
from forebay.drivers.rejection import rejected
from forebay.errors import Rejected

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from forebay.core.admission import Admission, Grant, Verdict
    from forebay.core.model import Ticket
    from forebay.drivers.waiters import Answer, Waiter

Asker = TypeVar("Asker", bound="Waiter")

_CANCELLED = Ending(Outcome.CANCELLED)


class HandOver:
    """Keeps those who wait for slots, and tells them what comes of it.

    Everything happens under one lock, for the few microseconds of a decision. What waits for
    nothing but time is looked after by the loop that this belongs to: while that is blocked, it
    waits longer.

    Args:
        admission: decides. Whoever looks at it while other threads may ask does so with `lock`.
        loop: the one that runs in this thread, to which this belongs.
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

    def later(self, do: Callable[[], object]) -> None:
        """Have the loop do something soon; for finalizers, which must not wait for the lock.

        They run in whatever thread the collector happens to run, perhaps in the middle of a
        decision.
        """
        self._alarm.in_loop(do)

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
