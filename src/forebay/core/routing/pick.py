"""Picks the endpoint that a request starts on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.core.endpoint import EndpointState
    from forebay.core.member import Member
    from forebay.core.model import Ticket
    from forebay.core.queue import Queue
    from forebay.core.routing.pool import Pool

# A key that holds so large a part of an endpoint's limit is *hot* there, and takes more only while
# so much of the limit is free: that is room for the other keys that prefer this endpoint.
_HOT, _LEFT_FREE = 0.25, 0.5

# Where a request starts, and the slots that it takes there.
Picked = tuple["Member", int]


def choices(pool: Pool, key: str | None) -> Iterator[EndpointState]:
    """The endpoints that a request with this affinity may start on, the best first.

    One that is left out takes nothing now; one may come twice.
    """
    if key is not None:
        for state in pool.rendezvous.order(key):
            if not _is_full_of(state, key):
                yield state
    yield from pool.by_load()


def pick(pool: Pool, queue: Queue, ticket: Ticket, now: float) -> Picked | None:
    """Return where a request starts at once; None: nowhere, or only the long way tells.

    Args:
        pool: the regular endpoints of its model.
        queue: its queue, in which nobody waits.
        ticket: the request.
        now: the time.
    """
    pool.forget(now)
    for state in choices(pool, ticket.affinity):
        member = queue.member_of(state.endpoint.id)
        if not member.room.lets_pass(member):
            return None  # others wait for this GPU; who is first there is for `order` to say
        weight = member.weight_at_once(ticket, now)
        if weight:
            return member, weight
    return None


def _is_full_of(state: EndpointState, key: str) -> bool:
    """Whether a key is hot at an endpoint that has no room for such."""
    held = state.keys.get(key, 0)
    is_hot = held >= max(1.0, _HOT * state.limit)
    return is_hot and state.load >= 1 - _LEFT_FREE
