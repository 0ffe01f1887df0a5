"""A running deployment: what a plan becomes once it has an event loop."""

from __future__ import annotations

import asyncio
import logging
import random
import resource
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from forebay.adapters.engines.http import scrape_session
from forebay.adapters.telemetry.log import LogObserver
from forebay.adapters.telemetry.metrics import Metrics
from forebay.adapters.upstream import Upstream, UpstreamSettings
from forebay.config.build import admission_of, retry_budgets
from forebay.config.embedding_status import embedding_endpoint_status
from forebay.config.scrapers import fetch_of, scraper_of
from forebay.config.status import status
from forebay.core.failovers import Failovers
from forebay.core.observer import Observers
from forebay.core.retries import Retries
from forebay.drivers.aio import AsyncLimiter
from forebay.gateway.embeddings.guards import IdentityGuards
from forebay.gateway.target import Target

if TYPE_CHECKING:
    import aiohttp

    from forebay.config.plan import Plan, PlannedEndpoint
    from forebay.core.model import ServiceClass

_log = logging.getLogger(__name__)

# Descriptors that a process needs beside its connections.
_OTHER_FILES = 100


class Deployment:
    """Endpoints, their clients and scrapers, and the admission over them. Belongs to one loop.

    Use it as an async context manager; leaving it closes every connection.

    Args:
        plan: the configuration.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.settings = plan.config.forebay
        loop = asyncio.get_running_loop()
        self.metrics = Metrics(loop.time)
        log = LogObserver()
        self.failovers = Failovers(Observers(self.metrics, log))
        observer = Observers(self.metrics, log, self.failovers)
        admission = admission_of(plan, random.Random(), observer)  # noqa: S311 - jitter
        self.limiter = AsyncLimiter(admission, loop)
        self.metrics.watch(admission)
        self.failovers.watch(admission)
        self.retries = Retries(admission, retry_budgets(plan))
        self.targets: dict[str, Target] = {}
        self.identity = IdentityGuards(self)
        self._stack = AsyncExitStack()
        self._loaded_at = datetime.now(UTC).isoformat(timespec="seconds")
        regular = [p.endpoint for p in plan.endpoints if p.endpoint.fallback_of is None]
        self._classes = {endpoint.model: endpoint.service_class for endpoint in regular}
        self._weighed = frozenset(
            endpoint.model for endpoint in regular if endpoint.tokens_per_slot is not None
        )
        models = plan.models.values()
        self._together = frozenset(model.id for model in models if model.routing == "hrw")

    async def __aenter__(self) -> Self:
        session = await self._stack.enter_async_context(scrape_session())
        for planned in self.plan.endpoints:
            self.targets[planned.endpoint.id] = self._target(planned, session)
        self._warn_of_few_files()
        self._stack.push_async_callback(self.identity.aclose)
        self.identity.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.limiter.close()
        await self._stack.aclose()

    def service_class(self, model: str) -> ServiceClass:
        """The class of the requests to `model` that do not ask for another."""
        return self._classes[model]

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
        return {
            **now,
            "config": {
                "path": self.plan.file,
                "loaded_at": self._loaded_at,
                "reload_error": None,
            },
        }

    def embedding_endpoint_status(self, key: str | None = None) -> dict[str, Any]:
        """Which endpoint embeds now: see `forebay.config.embedding_status`.

        Raises:
            Rejected: there is no such embedding model.
        """
        limiter = self.limiter
        now = embedding_endpoint_status(
            self.plan, limiter.admission, self.failovers, limiter.now(), key
        )
        return {**now, "identity": self.identity.status(now["model"])}

    def _target(self, planned: PlannedEndpoint, session: aiohttp.ClientSession) -> Target:
        times = self.settings.timeouts
        upstream = Upstream(
            planned.endpoint.base_url,
            UpstreamSettings(connect_timeout_s=times.connect_s, unreachable_s=times.unreachable_s),
        )
        fetch = fetch_of(planned, session)
        scraper = scraper_of(
            planned, fetch, self.limiter, interval_s=self.settings.scrape_interval_s
        )
        self._stack.push_async_callback(upstream.aclose)
        self._stack.push_async_callback(scraper.aclose)
        scraper.start()
        return Target.make(planned, upstream, scraper, fetch)

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
