"""Picks the endpoint that a request starts on at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def pick(pool: Pool, queue: Queue, ticket: Ticket, now: float) -> Picked | None:
    """Return where a request of `queue`, in which nobody waits, starts now; None: nowhere at once.

    Args:
        pool: the regular endpoints of its model.
        queue: its queue.
        ticket: the request.
        now: the time.
    """
    pool.forget(now)
    if ticket.affinity is not None:
        for state in pool.rendezvous.order(ticket.affinity):
            if not _is_full_of(state, ticket.affinity) and (
                found := _at(state, queue, ticket, now)
            ):
                return found
    for state in pool.by_load():
        if found := _at(state, queue, ticket, now):
            return found
    return None


def _at(state: EndpointState, queue: Queue, ticket: Ticket, now: float) -> Picked | None:
    member = queue.member_of(state.endpoint.id)
    weight = member.weight_at_once(ticket, now)
    return (member, weight) if weight else None


def _is_full_of(state: EndpointState, key: str) -> bool:
    """Whether a key is hot at an endpoint that has no room for such."""
    held = state.keys.get(key, 0)
    is_hot = held >= max(1.0, _HOT * state.limit)
    return is_hot and state.load >= 1 - _LEFT_FREE
