"""A plan that is in force, and that another one replaces while requests run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from forebay.config.build import queue_bounds, retry_budgets
from forebay.live.diff import Add, Drain, Move, Reconnect, SetBudget, Update, diff, until_restart

if TYPE_CHECKING:
    from forebay.config.plan import Plan, PlannedEndpoint
    from forebay.core.failovers import Failovers
    from forebay.core.model import Endpoint, ServiceClass
    from forebay.drivers.limiter import Limiter
    from forebay.drivers.retrying import Retrying
    from forebay.live.diff import Diff, Step


class Clients(Protocol):
    """What reaches the endpoints: connections, reads of metrics."""

    def connect(self, planned: PlannedEndpoint) -> None:
        """Be ready to reach an endpoint; what reached it before in another way runs out."""
        ...

    def disconnect(self, endpoint_id: str) -> None:
        """Nothing runs at the endpoint any more, and nothing will."""
        ...


class Live:
    """Carries a plan out.

    Endpoints that come are used at once. Those that go get nothing new, finish what they have, and
    are let go then. The others stay as they are, with all that has been learned of them.

    Args:
        plan: the one to begin with; `limiter` and `retries` were made from it.
        limiter: decides.
        retries: has a budget for each model.
        failovers: follows the endpoints.
        clients: reach them.

    Attributes:
        plan: the one in force.
    """

    def __init__(
        self,
        plan: Plan,
        limiter: Limiter,
        retries: Retrying,
        failovers: Failovers,
        clients: Clients,
    ) -> None:
        self.plan = self._first = plan
        self._limiter = limiter
        self._retries = retries
        self._failovers = failovers
        self._clients = clients
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._classes = self._service_classes()

    def start(self) -> None:
        """Connect to every endpoint."""
        for planned in self.plan.endpoints:
            self._clients.connect(planned)

    def apply(self, plan: Plan) -> Diff:
        """Put another plan in force; returns what that changed. No request sees half of it."""
        found = diff(self.plan, plan)
        limiter = self._limiter
        with limiter.lock:
            self.plan = plan
            limiter.admission.expect(plan.models)
            limiter.admission.set_queue_bounds(queue_bounds(plan))
            for step in found.steps:
                self._take(step)
            self._retries.follow(retry_budgets(plan))
            self._failovers.rearranged(limiter.now())
            self._classes = self._service_classes()
        return found

    def needs_restart(self) -> tuple[str, ...]:
        """What the plan says that is not in force before a restart."""
        states = self._limiter.admission.states
        stays = ((planned.endpoint, states[planned.endpoint.id]) for planned in self.plan.endpoints)
        return (
            *until_restart(self._first, self.plan),
            *(
                f"role or fallback of {endpoint.id}"
                for endpoint, state in stays
                if not state.draining and state.endpoint.part != endpoint.part
            ),
        )

    def service_class(self, model: str) -> ServiceClass:
        """The class of the requests to `model` that do not ask for another."""
        return self._classes[model]

    async def aclose(self) -> None:
        """Wait for nothing any more."""
        leaving = list(self._leaving.values())
        for task in leaving:
            task.cancel()
        if leaving:
            await asyncio.wait(leaving)

    def _take(self, step: Step) -> None:
        limiter = self._limiter
        match step:
            case Move(planned) | Update(planned) if planned.endpoint.id in self._leaving:
                pass  # it comes as another when it has left: `_let_go`
            case Drain(planned):
                id_ = planned.endpoint.id
                if id_ not in self._leaving:  # it may still wait for one before to leave
                    limiter.drain(id_)
                    self._leaving[id_] = asyncio.create_task(self._let_go(id_), name=f"drain {id_}")
            case Move(planned):
                limiter.move(planned.endpoint.id, planned.endpoint.gpu_group)
            case Update(planned):
                limiter.change(self._with_its_part(planned.endpoint))
            case SetBudget(group, budget):
                limiter.set_budget(group, budget)
            case Reconnect(planned):
                self._clients.connect(planned)
            case Add(planned):
                self._add(planned)

    def _add(self, planned: PlannedEndpoint) -> None:
        endpoint = planned.endpoint
        state = self._limiter.admission.states.get(endpoint.id)
        if state is not None:
            if state.endpoint.part != endpoint.part:
                return  # it comes when the one before has left: `_let_go`
            self._leaving.pop(endpoint.id).cancel()
        self._clients.connect(planned)
        self._limiter.add(endpoint)

    async def _let_go(self, endpoint_id: str) -> None:
        await self._limiter.empty(endpoint_id)
        del self._leaving[endpoint_id]
        with self._limiter.lock:
            self._limiter.remove(endpoint_id)
            self._clients.disconnect(endpoint_id)
        for planned in self.plan.endpoints:
            if planned.endpoint.id == endpoint_id:
                self._add(planned)

    def _with_its_part(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint as the plan has it, but to its models what it has been so far."""
        now = self._limiter.admission.states[endpoint.id].endpoint
        return replace(
            endpoint,
            service_class=now.service_class,
            fallback_of=now.fallback_of,
            also_for=now.also_for,
        )

    def _service_classes(self) -> dict[str, ServiceClass]:
        """The class of each model: that of its endpoints, which keep theirs while they stay."""
        classes = {model.id: model.service_class for model in self.plan.models.values()}
        for state in self._limiter.admission.states.values():
            endpoint = state.endpoint
            if endpoint.fallback_of is None and endpoint.model in classes and not state.draining:
                classes[endpoint.model] = endpoint.service_class
        return classes
