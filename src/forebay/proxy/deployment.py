"""A running deployment: what a plan becomes once it has an event loop."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from forebay.adapters.engines.http import scrape_session
from forebay.adapters.telemetry.log import LogObserver
from forebay.config.build import admission_of, retry_budgets
from forebay.config.embedding_status import embedder, embedding_endpoint_status
from forebay.config.status import status
from forebay.core.failovers import Failovers
from forebay.core.observer import Observers
from forebay.core.retries import Retries
from forebay.drivers.limiter import Limiter
from forebay.drivers.retrying import Retrying
from forebay.live import Live, Reload
from forebay.proxy.embeddings.guards import IdentityGuards
from forebay.proxy.embeddings.known import KnownEndpoint
from forebay.proxy.targets import Targets

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.adapters.telemetry.requests import RequestObserver
    from forebay.config.plan import Plan
    from forebay.config.settings import ForebaySettings
    from forebay.core.model import ServiceClass
    from forebay.live import Diff


class Deployment:
    """Endpoints, their clients and scrapers, and the admission over them. Belongs to one loop.

    Use it as an async context manager; leaving it closes every connection.

    Args:
        plan: the configuration to begin with.
        observer: hears of requests.
        clock: see `Limiter`.
        permit: called before a plan is in force; what it raises, keeps that plan out.

    Attributes:
        embedders: what is known of the endpoints that have embedded, by id.
        reload: follows the configuration's file, where somebody lets it.
        settings: Forebay's own, as they are now.
        targets: every endpoint.
    """

    targets: Targets

    def __init__(
        self,
        plan: Plan,
        observer: RequestObserver,
        *,
        clock: Callable[[], float] | None = None,
        permit: Callable[[Plan], None] | None = None,
    ) -> None:
        self.settings = plan.config.forebay
        self.observer = observer
        log = LogObserver()
        self.identity = IdentityGuards(self)
        self.failovers = Failovers(Observers(observer, log, self.identity))
        observers = Observers(observer, log, self.failovers, self.identity)
        admission = admission_of(plan, random.Random(), observers)  # noqa: S311 - jitter
        self.limiter = Limiter(admission, asyncio.get_running_loop(), clock)
        self.failovers.watch(admission)
        self.embedders: dict[str, KnownEndpoint] = {}
        self.retries = Retrying(Retries(admission, retry_budgets(plan)), self.limiter.lock)
        self.reload = Reload(plan, self.apply, self.needs_restart)
        self._stack = AsyncExitStack()
        self._plan = plan
        self._permit = permit
        self._weighed = _weighed(plan)
        self._together = _together(plan)
        self._on_change: list[Callable[[ForebaySettings], None]] = []

    async def __aenter__(self) -> Self:
        if self._permit is not None:
            self._permit(self._plan)
        session = await self._stack.enter_async_context(scrape_session())
        self.targets = Targets(self.limiter, session, self.settings, self.observer)
        self._live = Live(self._plan, self.limiter, self.retries, self.failovers, self.targets)
        self._stack.push_async_callback(self.targets.aclose)
        self._stack.push_async_callback(self._live.aclose)
        self._live.start()
        self._stack.push_async_callback(self.identity.aclose)
        self.identity.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.limiter.close()
        await self._stack.aclose()

    @property
    def plan(self) -> Plan:
        """The configuration in force."""
        return self._live.plan

    def apply(self, plan: Plan) -> Diff:
        """Put another plan in force while requests run; returns what that changed."""
        if self._permit is not None:
            self._permit(plan)
        self.settings = self.targets.settings = plan.config.forebay
        changes = self._live.apply(plan)
        self._weighed, self._together = _weighed(plan), _together(plan)
        self.identity.follow()
        for changed in self._on_change:
            changed(self.settings)
        return changes

    def needs_restart(self) -> tuple[str, ...]:
        """What the configuration in force says that is not in force before a restart."""
        return self._live.needs_restart()

    def on_change(self, changed: Callable[[ForebaySettings], None]) -> None:
        """Have something called when another plan is in force."""
        self._on_change.append(changed)

    def service_class(self, model: str) -> ServiceClass:
        """The class of the requests to `model` that do not ask for another."""
        return self._live.service_class(model)

    def weighs(self, model: str) -> bool:
        """Whether the size of a request to `model` decides how many slots it takes."""
        return model in self._weighed

    def keeps_together(self, model: str | None) -> bool:
        """Whether what requests to `model` have in common is looked for in their bodies."""
        return model in self._together

    def status(self) -> dict[str, Any]:
        """What is so now: see `forebay.config.status`, and where the configuration came from."""
        limiter = self.limiter
        with limiter.lock:  # another plan comes into force under it
            scrapers = {id_: target.scraper for id_, target in self.targets.items()}
            now = status(self.plan, limiter.admission, scrapers, limiter.now())
            for id_, model in now["models"].items():
                model["identity"] = self.identity.status(id_)
            for planned in self.plan.endpoints:
                if planned.kind == "embedding":
                    id_ = planned.endpoint.id
                    known = self.embedders.get(id_) or KnownEndpoint(self.targets[id_])
                    now["endpoints"][id_]["batches"] = known.status()
        return {**now, "config": self.reload.status()}

    def embedding_endpoint_status(self, key: str | None = None) -> dict[str, Any]:
        """Which endpoint embeds now: see `forebay.config.embedding_status`.

        Raises:
            Rejected: there is no such embedding model.
        """
        limiter = self.limiter
        with limiter.lock:
            model = embedder(self.plan, key).id
            unfit, identity = self.identity.unfit(model), self.identity.status(model)
            now = embedding_endpoint_status(
                self.plan, limiter.admission, self.failovers, limiter.now(), model, unfit
            )
        return {**now, "identity": identity}


def _weighed(plan: Plan) -> frozenset[str]:
    """The models whose requests weigh by their size."""
    endpoints = (planned.endpoint for planned in plan.endpoints)
    return frozenset(e.model for e in endpoints if not e.fallback_of and e.tokens_per_slot)


def _together(plan: Plan) -> frozenset[str]:
    """The models whose requests are kept together by what they have in common."""
    return frozenset(model.id for model in plan.models.values() if model.routing == "hrw")
