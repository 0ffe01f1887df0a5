"""A running deployment: what a plan becomes once it has an event loop."""

from __future__ import annotations

import asyncio
import logging
import random
import resource
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from forebay.adapters.engines.http import scrape_session
from forebay.adapters.telemetry.gauges import AdmissionGauges, ConfigurationMetrics, FitnessGauge
from forebay.adapters.telemetry.log import LogObserver
from forebay.adapters.telemetry.metrics import Metrics
from forebay.config.build import admission_of, retry_budgets
from forebay.config.embedding_status import embedder, embedding_endpoint_status
from forebay.config.status import status
from forebay.core.failovers import Failovers
from forebay.core.observer import Observers
from forebay.core.retries import Retries
from forebay.drivers.limiter import Limiter
from forebay.gateway.embeddings.guards import IdentityGuards
from forebay.gateway.embeddings.known import KnownEndpoint
from forebay.gateway.targets import Targets
from forebay.live import Live, Reload

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.config.plan import Plan
    from forebay.config.settings import ForebaySettings
    from forebay.core.model import ServiceClass
    from forebay.live import Diff

_log = logging.getLogger(__name__)

# Descriptors that a process needs beside its connections.
_OTHER_FILES = 100


class Deployment:
    """Endpoints, their clients and scrapers, and the admission over them. Belongs to one loop.

    Use it as an async context manager; leaving it closes every connection.

    Args:
        plan: the configuration to begin with.

    Attributes:
        embedders: what is known of the endpoints that have embedded, by id.
        reload: follows the configuration's file, where somebody lets it.
        settings: Forebay's own, as they are now.
        targets: every endpoint.
    """

    targets: Targets

    def __init__(self, plan: Plan) -> None:
        self.settings = plan.config.forebay
        loop = asyncio.get_running_loop()
        self.metrics = Metrics()
        log = LogObserver()
        self.identity = IdentityGuards(self)
        self.failovers = Failovers(Observers(self.metrics, log, self.identity))
        observer = Observers(self.metrics, log, self.failovers, self.identity)
        admission = admission_of(plan, random.Random(), observer)  # noqa: S311 - jitter
        self.limiter = Limiter(admission, loop)
        self.failovers.watch(admission)
        self.embedders: dict[str, KnownEndpoint] = {}
        self.retries = Retries(admission, retry_budgets(plan))
        self.reload = Reload(plan, self.apply, self.needs_restart)
        for collector in (
            AdmissionGauges(admission, loop.time),
            FitnessGauge(self.identity.fitness),
            ConfigurationMetrics(self.reload),
        ):
            self.metrics.watch(collector)
        self._stack = AsyncExitStack()
        self._plan = plan
        self._weighed = _weighed(plan)
        self._together = _together(plan)
        self._on_change: list[Callable[[ForebaySettings], None]] = []

    async def __aenter__(self) -> Self:
        session = await self._stack.enter_async_context(scrape_session())
        self.targets = Targets(self.limiter, session, self.settings, self.metrics)
        self._live = Live(self._plan, self.limiter, self.retries, self.failovers, self.targets)
        self._stack.push_async_callback(self.targets.aclose)
        self._stack.push_async_callback(self._live.aclose)
        self._live.start()
        self._warn_of_few_files()
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
        self.settings = self.targets.settings = plan.config.forebay
        changes = self._live.apply(plan)
        self._weighed, self._together = _weighed(plan), _together(plan)
        self.identity.follow()
        for changed in self._on_change:
            changed(self.settings)
        self._warn_of_few_files()
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
        scrapers = {id_: target.scraper for id_, target in self.targets.items()}
        limiter = self.limiter
        now = status(self.plan, limiter.admission, scrapers, limiter.now())
        for id_, model in now["models"].items():
            model["identity"] = self.identity.status(id_)
        for planned in self.plan.endpoints:
            if planned.kind == "embedding":
                id_ = planned.endpoint.id
                known = self.embedders.get(id_) or KnownEndpoint(self.targets[id_])
                now["endpoints"][id_]["batches"] = known.status()
        return {
            **now,
            "config": self.reload.status(),
        }

    def embedding_endpoint_status(self, key: str | None = None) -> dict[str, Any]:
        """Which endpoint embeds now: see `forebay.config.embedding_status`.

        Raises:
            Rejected: there is no such embedding model.
        """
        limiter, model = self.limiter, embedder(self.plan, key).id
        return {
            **embedding_endpoint_status(
                self.plan,
                limiter.admission,
                self.failovers,
                limiter.now(),
                model,
                self.identity.unfit(model),
            ),
            "identity": self.identity.status(model),
        }

    def _warn_of_few_files(self) -> None:
        """Each request needs a descriptor towards its client, and one towards its endpoint."""
        needed = 2 * sum(p.endpoint.ceiling for p in self.plan.endpoints) + _OTHER_FILES
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < needed and soft < hard:
            soft = min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            _log.warning(
                "the limit of open files is %d, but %d may be needed; raise it (ulimit -n)",
                soft,
                needed,
            )


def _weighed(plan: Plan) -> frozenset[str]:
    """The models whose requests weigh by their size."""
    endpoints = (planned.endpoint for planned in plan.endpoints)
    return frozenset(e.model for e in endpoints if not e.fallback_of and e.tokens_per_slot)


def _together(plan: Plan) -> frozenset[str]:
    """The models whose requests are kept together by what they have in common."""
    return frozenset(model.id for model in plan.models.values() if model.routing == "hrw")
