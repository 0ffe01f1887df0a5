"""When a ticket is refused at once instead of waiting, and what its owner is told."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from forebay.core.model import EngineState, Reason, Refusal

if TYPE_CHECKING:
    from forebay.core.model import Ticket
    from forebay.core.queue import Queue

# A client is never told to stay away for longer, seconds.
_LONGEST_RETRY_AFTER_S = 60
# When an engine that starts or sleeps is worth another try, seconds.
_ENGINE_RETRY_S = 5.0

_ASLEEP = EngineState.ASLEEP


def refusal(queue: Queue, ticket: Ticket, now: float) -> Refusal | None:
    """Return why `ticket` can neither start nor wait in `queue`, if so."""
    if ticket.deadline <= now:
        return Refusal(ticket, Reason.DEADLINE)
    gone = out_of_service(queue, now)
    return None if gone is None else Refusal(ticket, *gone)


def queue_full(queue: Queue, ticket: Ticket) -> Refusal:
    """Return the refusal of a ticket that would have to wait where no more may."""
    return Refusal(ticket, Reason.QUEUE_FULL, _wait_s(queue))


def out_of_service(queue: Queue, now: float) -> tuple[Reason, float | None] | None:
    """Return why nothing of `queue` can be served for a while, and when to try again, if so."""
    if not queue.members:  # the last one is draining
        return Reason.UNAVAILABLE, 1.0
    broken = []
    for member in queue.members:
        most = member.room.most(member)
        if most is None or most > 0:
            if not member.state.broken(now):
                return None
            broken.append(member.state)
    if not broken:
        return Reason.NO_ROOM, None
    if all(s.signal and s.signal.state is _ASLEEP for s in broken):
        return Reason.ASLEEP, _ENGINE_RETRY_S
    if not any(s.engine_serves for s in broken):
        return Reason.LOADING, _ENGINE_RETRY_S
    soonest_s = min(s.breaker.retry_after_s(now) for s in broken if s.engine_serves)
    return Reason.UNAVAILABLE, max(1.0, soonest_s)


def _wait_s(queue: Queue) -> float:
    """Return roughly how long a full queue takes to serve what waits in it now, seconds."""
    serving = (m.state for m in queue.members if m.waiting and m.state.service_s)
    rate = sum(state.limit / state.service_s for state in serving)
    wait_s = ceil(len(queue) / rate) if rate else 1
    return min(max(wait_s, 1), _LONGEST_RETRY_AFTER_S)
