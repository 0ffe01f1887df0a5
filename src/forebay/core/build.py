"""Put an `Admission` together from endpoints and budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.admission import Admission
from forebay.core.breaker import Breaker, BreakerSettings
from forebay.core.endpoint import EndpointState
from forebay.core.member import Member
from forebay.core.model import ServiceClass
from forebay.core.observer import Observer
from forebay.core.protection import Guard
from forebay.core.queue import Queue, QueueBounds
from forebay.core.room import Room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from forebay.core.breaker import Rng
    from forebay.core.limits.protocol import Limit
    from forebay.core.model import Endpoint
    from forebay.core.protection import ProtectionSettings


def build(  # noqa: PLR0913 - every part of a deployment meets here, by name
    endpoints: Iterable[Endpoint],
    budgets: Mapping[str, int],
    *,
    law: Callable[[Endpoint], Limit],
    rng: Rng,
    breaker: BreakerSettings | None = None,
    bounds: QueueBounds | None = None,
    max_overtakes: int = 8,
    protection: ProtectionSettings | None = None,
    observer: Observer | None = None,
) -> Admission:
    """Build the admission of a whole deployment.

    Args:
        endpoints: all of them; several may serve one model.
        budgets: slots by GPU group; a group without one binds nobody (R5).
        law: makes an endpoint's limit.
        rng: for jitter only.
        breaker: settings of every endpoint's breaker.
        bounds: of every queue.
        max_overtakes: see `Room`.
        protection: of chat from best-effort work on its GPU; None leaves it to counts.
        observer: hears of limits and breakers.

    Raises:
        ValueError: an id twice, or floors that add up to more than their group's budget.
    """
    states: dict[str, EndpointState] = {}
    queues: dict[tuple[str, ServiceClass], Queue] = {}
    rooms: dict[str, Room] = {}
    for endpoint in endpoints:
        if endpoint.id in states:
            raise ValueError(f"endpoint {endpoint.id!r} is there twice")
        state = states[endpoint.id] = EndpointState(
            endpoint,
            law=law(endpoint),
            breaker=Breaker(breaker or BreakerSettings(), rng),
            ceiling=endpoint.ceiling,
            observer=observer or Observer(),
        )
        budget = budgets.get(endpoint.gpu_group)
        name = endpoint.gpu_group if budget is not None else endpoint.id
        room = rooms.setdefault(name, Room(name, budget, max_overtakes))
        _join(state, room, queues, bounds or QueueBounds())
    for room in rooms.values():
        if room.budget is not None:
            room.set_budget(room.budget)
    if protection is not None:
        _protect(states.values(), protection, observer or Observer())
    return Admission(states, queues, rooms)


def _join(
    state: EndpointState,
    room: Room,
    queues: dict[tuple[str, ServiceClass], Queue],
    bounds: QueueBounds,
) -> None:
    """Make the endpoint's two members: of its own class, and of the other one."""
    endpoint = state.endpoint
    made = []
    for service_class in ServiceClass:
        native = service_class is endpoint.service_class
        key = (endpoint.model, service_class)
        queue = queues.setdefault(key, Queue(endpoint.model, service_class, bounds))
        member = Member(
            index=len(room.members),
            state=state,
            queue=queue,
            room=room,
            service_class=service_class,
            floor=endpoint.floor if native else 0,
            priority=native and service_class is ServiceClass.INTERACTIVE,
        )
        made.append(member)
        room.add(member)
        queue.members.append(member)
        if native:
            state.native = member
        else:
            state.visitor = member
    made[0].sibling, made[1].sibling = made[1], made[0]


def _protect(
    states: Iterable[EndpointState], settings: ProtectionSettings, observer: Observer
) -> None:
    """Put a guard before every GPU on which chat runs, whether or not it has a budget."""
    guards = {
        state.endpoint.gpu_group: Guard(state.endpoint.gpu_group, settings, observer)
        for state in states
        if state.native.interactive
    }
    for state in states:
        room, guard = state.native.room, guards.get(state.endpoint.gpu_group)
        if guard is not None:
            room.guard = guard
            guard.watch(room, 0 if state.native.interactive else state.native.floor)
