"""The guards of all embedding models, and the references that they take when the gateway starts."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.core.breaker import BreakerState
from forebay.core.model import Ending, Outcome, Ticket
from forebay.core.observer import Observer
from forebay.errors import Rejected
from forebay.proxy.call import TIMEOUT_HEADER, Call, Context
from forebay.proxy.embeddings.guard import ModelGuard
from forebay.proxy.embeddings.held import HeldAnswer, Room
from forebay.proxy.failure import Failed
from forebay.proxy.look import Look
from forebay.proxy.message import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.core.breaker import Change
    from forebay.core.model import Endpoint
    from forebay.proxy.deployment import Deployment

_log = logging.getLogger(__name__)

_OK, _CANCELLED = Ending(Outcome.OK), Ending(Outcome.CANCELLED)
_REQUEST_ID = b"forebay-identity"
# For one attempt at a reference, and between two of them.
_ATTEMPT_S = 30.0
_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


class IdentityGuards(Observer):
    """A guard for each embedding model that more than one endpoint may serve.

    An endpoint that was away is compared again: what comes back may be another model.

    Args:
        deployment: the endpoints and their admission.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._settings = deployment.settings.identity
        self._guards: dict[str, ModelGuard] = {}
        # Of the guards that have no reference yet.
        self._tasks: dict[ModelGuard, asyncio.Task[None]] = {}

    def of(self, model: str) -> ModelGuard | None:
        """The guard of a model; None if its vectors can only be its own, or guards are off.

        Once there, it stays as long as the model: endpoints that come have to be like those before.
        """
        guard, settings = self._guards.get(model), self._settings
        if guard is not None or settings is None:
            return guard
        served = self._deployment.plan.models.get(model)
        if served is None or served.kind != "embedding":
            return None
        if len(served.endpoints) + len(served.fallbacks) <= 1:
            return None
        guard = ModelGuard(model, settings, self._deployment.limiter.now)
        return self._guards.setdefault(model, guard)  # two threads may ask at once

    def breaker_changed(self, endpoint: Endpoint, change: Change, now: float) -> None:  # noqa: ARG002 - an observer's
        """Believe nothing of an endpoint that went away."""
        if change.after is BreakerState.OPEN:
            for guard in tuple(self._guards.values()):  # any thread may hear of it
                guard.identity.doubt(endpoint.id)

    def stand_in_changed(self, model: str, now: float, *, serves: bool) -> None:  # noqa: ARG002 - as above
        """Say anew what is found of the stand-ins in every outage."""
        guard = self._guards.get(model)
        if serves and guard is not None:
            guard.findings.tell_again()

    def status(self, model: str) -> dict[str, Any] | None:
        """What is known of a model's endpoints; None where nothing guards it."""
        guard, served = self.of(model), self._deployment.plan.models[model]
        return guard.status((*served.endpoints, *served.fallbacks)) if guard else None

    def unfit(self, model: str) -> dict[str, str]:
        """Ids of the endpoints that are not used for a model, and why."""
        guard, served = self.of(model), self._deployment.plan.models[model]
        if guard is None:
            return {}
        reasons = {id_: guard.why_unfit(id_, stands_in=False) for id_ in served.endpoints}
        reasons |= {id_: guard.why_unfit(id_, stands_in=True) for id_ in served.fallbacks}
        return {id_: reason for id_, reason in reasons.items() if reason is not None}

    def fitness(self) -> Iterator[tuple[str, Endpoint, bool]]:
        """Each guarded model, each of its endpoints, and whether that is fit for it."""
        plan, states = self._deployment.plan, self._deployment.limiter.admission.states
        for model in filter(self.of, plan.models):
            unfit, served = self.unfit(model), plan.models[model]
            for id_ in (*served.endpoints, *served.fallbacks):
                yield model, states[id_].endpoint, id_ not in unfit

    def start(self) -> None:
        """Begin to take references, while the endpoints that they come from are there."""
        for guard in filter(None, map(self.of, self._deployment.plan.models)):
            if guard.identity.reference is None and guard not in self._tasks:
                task = asyncio.create_task(self._take_reference(guard))
                self._tasks[guard] = task
                task.add_done_callback(partial(self._taken, guard))

    def follow(self) -> None:
        """Another configuration is in force: guard what it has."""
        plan = self._deployment.plan
        for model in self._guards.keys() - plan.models.keys():
            guard = self._guards.pop(model)
            if guard in self._tasks:
                self._tasks[guard].cancel()
        for model, guard in tuple(self._guards.items()):
            served = plan.models[model]
            guard.keep({*served.endpoints, *served.fallbacks})
        self.start()

    async def aclose(self) -> None:
        """Stop taking references."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _taken(self, guard: ModelGuard, _task: asyncio.Task[None]) -> None:
        del self._tasks[guard]

    async def _take_reference(self, guard: ModelGuard) -> None:
        pause_s = _PAUSE_S
        while guard.identity.reference is None:
            try:
                await self._attempt(guard)
            except (Failed, Rejected) as error:
                _log.info("no reference yet for the vectors of %r: %s", guard.model, error)
            if guard.identity.reference is None:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _attempt(self, guard: ModelGuard) -> None:
        """Ask a regular endpoint for it, in a slot like any request's.

        Raises:
            Rejected: there was no slot.
            Failed: the endpoint did not answer.
        """
        deployment, model = self._deployment, guard.model
        limiter, now = deployment.limiter, deployment.limiter.now()
        stand_ins = frozenset(deployment.plan.models[model].fallbacks)
        service_class = deployment.service_class(model)
        ticket = Ticket(model, service_class, now, now + _ATTEMPT_S, avoid=stand_ins)
        lease = await limiter.slot(ticket)
        # What fails here is nobody's request, and counts against no endpoint.
        ending = _CANCELLED
        try:
            if lease.endpoint.id not in stand_ins:
                target = deployment.targets[lease.endpoint.id]
                await guard.check(self._call(model, ticket), target, lease)
                ending = _OK
        finally:
            lease.settle(ending)

    def _call(self, model: str, ticket: Ticket) -> Call:
        """Nobody's request, in whose time the reference is taken."""
        deployment = self._deployment
        loop = asyncio.get_running_loop()
        context = Context(loop, deployment.settings.timeouts, deployment.observer)
        timeout = (TIMEOUT_HEADER, b"%d" % _ATTEMPT_S)
        return Call(
            Request(b"POST", b"/v1/embeddings", b"", [timeout], b""),
            HeldAnswer(Room()),
            Look(model=model),
            b"",
            _REQUEST_ID,
            ticket.asked_at,
            ticket.deadline,
            context,
        )
