"""What keeps a request waiting that could run at an endpoint, for people who look."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.endpoint import EndpointState
    from forebay.core.member import Member
    from forebay.core.model import Ticket


class Binding(StrEnum):
    """What has to change before the next request starts."""

    ENGINE = "engine"  # it sleeps or loads, by its own word
    BREAKER = "breaker"
    REST = "rest"  # the endpoint asked to be left alone, or does nothing but refuse
    MEASURING = "measuring"  # protection measures chat alone
    SHARE = "share"  # of best-effort work, by protection
    LIMIT = "limit"
    RAMP = "ramp"
    BUDGET = "budget"
    RESERVE = "reserve"  # what is free is kept for the floors of others
    ORDER = "order"  # others go first


def binding(member: Member, now: float) -> Binding | None:
    """What binds the request that waits first for a member; None if none waits for it."""
    ticket, state, room = member.head, member.state, member.room
    if ticket is None:
        return None
    away = _away(state, now)
    if away is not None:
        return away
    guard = None if member.interactive else room.guard
    if guard is not None and guard.holds(now):
        return Binding.MEASURING if guard.measuring else Binding.SHARE
    turn = room.turn
    weight = member.admits(ticket, turn)
    if not weight:
        return _at_endpoint(member, ticket, turn, now)
    if room.fits(member, weight, on_turn=member is turn):
        return Binding.ORDER
    is_full = room.budget is not None and room.inflight + weight > room.budget
    return Binding.BUDGET if is_full else Binding.RESERVE


def _at_endpoint(member: Member, ticket: Ticket, turn: Member | None, now: float) -> Binding:
    """Why the endpoint's own limit admits nothing to a member."""
    state = member.state
    slots = min(state.endpoint.slots_for(ticket), state.limit)
    if state.inflight + slots > state.limit:
        return Binding.LIMIT if state.ramp(now) is None else Binding.RAMP
    passed = any(first.waiting for first in member.yields_to)
    passed = passed or (turn is not None and turn.state is state)
    return Binding.ORDER if passed else Binding.RESERVE


def _away(state: EndpointState, now: float) -> Binding | None:
    """Why nothing may start at the endpoint at all."""
    if not state.engine_serves:
        return Binding.ENGINE
    if state.broken(now):
        return Binding.BREAKER
    return Binding.REST if now < state.rest.until else None
