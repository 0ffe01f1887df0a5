"""Where everything is: endpoints, the queues that they serve, the rooms that they share.

It is put together from endpoints and budgets, and can be changed while requests run. `Admission`
does that, and then starts or refuses what follows; nothing here does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from forebay.core.breaker import Breaker
from forebay.core.endpoint import EndpointState
from forebay.core.member import members_of
from forebay.core.model import ServiceClass
from forebay.core.protection import Guard
from forebay.core.queue import Queue
from forebay.core.room import Room
from forebay.core.routing import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forebay.core.breaker import BreakerSettings, Rng
    from forebay.core.limits.protocol import Limit
    from forebay.core.model import Endpoint
    from forebay.core.observer import Observer
    from forebay.core.protection import ProtectionSettings
    from forebay.core.queue import QueueBounds


@dataclass(frozen=True, slots=True)
class Rules:
    """What is the same for every endpoint.

    Args:
        law: makes an endpoint's limit.
        rng: for jitter, and for the choice between equals.
        breaker: settings of every endpoint's breaker.
        bounds: of every queue.
        max_overtakes: see `Room`.
        protection: of chat from best-effort work on its GPU; None leaves it to counts.
        observer: hears of limits, breakers and shares.
    """

    law: Callable[[Endpoint], Limit]
    rng: Rng
    breaker: BreakerSettings
    bounds: QueueBounds
    max_overtakes: int
    protection: ProtectionSettings | None
    observer: Observer


@dataclass(slots=True, eq=False, repr=False)
class Layout:
    """A deployment as it stands.

    Args:
        rules: what is the same everywhere.
        budgets: slots by GPU group; a group without one binds nobody (R5).
        states: every endpoint by id.
        queues: by model and class.
        rooms: by name: a group's that has a budget, else its only endpoint's id.
        models: those that may be asked for although no endpoint may serve them now.
    """

    rules: Rules
    budgets: dict[str, int]
    states: dict[str, EndpointState] = field(default_factory=dict, init=False)
    queues: dict[tuple[str, ServiceClass], Queue] = field(default_factory=dict, init=False)
    rooms: dict[str, Room] = field(default_factory=dict, init=False)
    models: frozenset[str] = field(default=frozenset(), init=False)
    _groups: dict[str, dict[str, EndpointState]] = field(default_factory=dict, init=False)
    _guards: dict[str, Guard] = field(default_factory=dict, init=False)

    def add(self, endpoint: Endpoint) -> EndpointState:
        """Put an endpoint in; `check_floors` with it before, or in the end.

        Raises:
            ValueError: its id is there already.
        """
        if endpoint.id in self.states:
            raise ValueError(f"endpoint {endpoint.id!r} is there twice")
        main_class = endpoint.service_class
        if endpoint.fallback_of is not None:
            main_class = self._class_of(endpoint, endpoint.fallback_of)
        rules, group = self.rules, endpoint.gpu_group
        state = EndpointState(
            endpoint,
            law=rules.law(endpoint),
            breaker=Breaker(rules.breaker, rules.rng),
            ceiling=endpoint.ceiling,
            observer=rules.observer,
        )
        self.states[endpoint.id] = self._groups.setdefault(group, {})[endpoint.id] = state
        state.members = members_of(state, main_class, self._queue)
        state.native = next(member for member in state.members if member.floor)
        self._enter_room(state)
        for member in state.members:
            member.queue.add(member)
        self._spread(endpoint.model)
        self._protect(group)
        return state

    def check_floors(self, *more: Endpoint) -> None:
        """Make sure that floors fit their groups' budgets, with those of `more` endpoints.

        Raises:
            ValueError: some do not.
        """
        for group, budget in self.budgets.items():
            self._check_floors(group, budget, sum(e.floor for e in more if e.gpu_group == group))

    def close(self, state: EndpointState) -> list[Queue]:
        """Let an endpoint serve nothing more, and return the queues that it served.

        What runs there goes on, and counts in its room. Its floor is kept for nobody.
        """
        served = [member.queue for member in state.members]
        state.draining = True
        for member in state.members:
            queue = member.queue
            queue.remove(member)
            # One that nobody ever joins.
            member.queue = Queue(queue.model, queue.service_class, queue.bounds)
            member.room.refresh(member)
        self._spread(state.endpoint.model)
        state.native.room.set_floor(state.native, 0)
        self._protect(state.endpoint.gpu_group)
        return served

    def reopen(self, state: EndpointState) -> None:
        """Let an endpoint that drains serve again; `check_floors` with it before."""
        state.draining = False
        state.native.room.set_floor(state.native, state.endpoint.floor)
        for member in state.members:
            member.queue = self._queue(member.queue.model, member.queue.service_class)
            member.queue.add(member)
        self._spread(state.endpoint.model)
        self._protect(state.endpoint.gpu_group)

    def remove(self, state: EndpointState) -> None:
        """Take an endpoint out that was closed, and of which nothing runs."""
        self._leave_room(state)
        del self.states[state.endpoint.id]
        self._drop_unused_queues()
        self._protect(state.endpoint.gpu_group)

    def expect(self, models: Iterable[str]) -> None:
        """Let these models be asked for, and no other that nobody serves."""
        self.models = frozenset(models)
        for model in self.models:
            for service_class in ServiceClass:
                self._queue(model, service_class)
        self._drop_unused_queues()

    def move(self, state: EndpointState, group: str) -> None:
        """Let an endpoint be on another GPU, with what runs there, and without a floor."""
        before, room = state.endpoint.gpu_group, state.native.room
        room.set_floor(state.native, 0)
        self._leave_room(state)
        state.endpoint = replace(state.endpoint, gpu_group=group)
        self._groups.setdefault(group, {})[state.endpoint.id] = state
        self._enter_room(state)
        self._protect(before)
        self._protect(group)

    def group(self, name: str) -> list[EndpointState]:
        """The endpoints on one GPU."""
        return list(self._groups.get(name, {}).values())

    def set_budget(self, group: str, budget: int | None) -> None:
        """Give a group another budget, or none.

        Raises:
            ValueError: its floors add up to more.
        """
        self._check_floors(group, budget)
        before = self.budgets.pop(group, None)
        if budget is not None:
            self.budgets[group] = budget
        states = self.group(group)
        if before is None and budget is None:
            return
        if before is None or budget is None:  # one room for all, or one for each
            for state in states:
                self.rooms.pop(state.native.room.name, None)
            for state in states:
                self._enter_room(state)
            self._protect(group)
        for state in states:
            state.native.room.budget = budget

    def set_queue_bounds(self, bounds: QueueBounds) -> None:
        """Move how much may wait; what waits stays."""
        self.rules = replace(self.rules, bounds=bounds)
        for queue in self.queues.values():
            queue.bounds = bounds

    def set_floor(self, state: EndpointState, floor: int) -> None:
        """Give an endpoint another floor.

        Raises:
            ValueError: the floors of its group add up to more than its budget.
        """
        native, group = state.native, state.endpoint.gpu_group
        self._check_floors(group, self.budgets.get(group), floor - native.floor)
        native.room.set_floor(native, floor)
        self._protect(group)

    def _check_floors(self, group: str, budget: int | None, more: int = 0) -> None:
        states = self.group(group)
        floors = sum(state.native.floor for state in states) + more
        if budget is not None and floors > budget:
            raise ValueError(f"group {group!r}: floors total {floors}, budget is {budget}")

    def _class_of(self, endpoint: Endpoint, model: str) -> ServiceClass:
        """The class of requests to `model` that do not ask for another one, as far as is known."""
        for service_class in ServiceClass:
            queue = self.queues.get((model, service_class))
            for member in () if queue is None else queue.members:
                if not member.stands_in:
                    return member.state.endpoint.service_class
        return endpoint.service_class

    def _queue(self, model: str, service_class: ServiceClass) -> Queue:
        key = model, service_class
        if key not in self.queues:
            self.queues[key] = Queue(model, service_class, self.rules.bounds)
        return self.queues[key]

    def _drop_unused_queues(self) -> None:
        served = {_key(member.queue) for each in self.states.values() for member in each.members}
        for key in self.queues.keys() - served:
            if key[0] not in self.models:
                del self.queues[key]

    def _enter_room(self, state: EndpointState) -> None:
        group = state.endpoint.gpu_group
        budget = self.budgets.get(group)
        name = group if budget is not None else state.endpoint.id
        if name not in self.rooms:
            self.rooms[name] = Room(name, budget, self.rules.max_overtakes)
        room = self.rooms[name]
        for member in state.members:
            room.add(member)

    def _leave_room(self, state: EndpointState) -> None:
        name, room = state.endpoint.gpu_group, state.native.room
        for member in state.members:
            room.remove(member)
        if not room.members:
            del self.rooms[room.name]
        del self._groups[name][state.endpoint.id]
        if not self._groups[name]:
            del self._groups[name]

    def _spread(self, model: str) -> None:
        """Let requests be spread over a model's regular endpoints, if it has several."""
        queues = [queue for c in ServiceClass if (queue := self.queues.get((model, c))) is not None]
        if not queues:  # of a stand-in that serves it under another name
            return
        regular = [member.state for member in queues[0].members if not member.stands_in]
        if len(regular) == 1:
            regular = []
        pool = queues[0].pool or Pool(self.rules.rng)
        for state in pool.states:
            if state not in regular:
                pool.remove(state)
        for state in regular:
            if state.pool is None:
                pool.add(state)
        for queue in queues:
            queue.pool = pool if regular else None

    def _protect(self, group: str) -> None:
        """Put a guard before every GPU on which chat runs, whether or not it has a budget."""
        settings = self.rules.protection
        if settings is None:
            return
        states = self.group(group)
        rooms = list({state.native.room: None for state in states})
        if any(state.native.interactive and not state.draining for state in states):
            guard = self._guards.get(group) or Guard(group, settings, self.rules.observer)
            self._guards[group] = guard
            bulk = (state.native for state in states if not state.native.interactive)
            guard.cover(rooms, sum(native.floor for native in bulk))
            for room in rooms:
                room.guard = guard
        elif group in self._guards:
            self._guards.pop(group).lifted = True
            for room in rooms:
                room.guard, room.held = None, False


def _key(queue: Queue) -> tuple[str, ServiceClass]:
    return queue.model, queue.service_class
