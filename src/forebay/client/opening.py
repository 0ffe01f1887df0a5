"""How a session begins and ends."""

from __future__ import annotations

import logging
import random
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from forebay.adapters.engines.http import scrape_session
from forebay.adapters.telemetry.log import LogObserver
from forebay.client.home import Home
from forebay.client.scrapers import Scrapers
from forebay.client.session import Session
from forebay.config import load
from forebay.config.build import admission_of, retry_budgets
from forebay.core.failovers import Failovers
from forebay.core.observer import Observers
from forebay.core.retries import Retries
from forebay.drivers.limiter import Limiter
from forebay.live import Live, Reload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from forebay.config import Plan
    from forebay.live import Diff

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open(config: str | Path | None = None) -> AsyncIterator[Session]:  # noqa: A001 - `forebay.open`
    """Open a session: ``async with forebay.open("config.json") as fb``.

    While it is open it goes by the file as it is: endpoints come and go, budgets move.

    Args:
        config: the configuration file; None finds it as the command line does: ``FOREBAY_CONFIG``,
            else the user's own.

    Raises:
        ConfigError: there is no such file, or it must not start.
        UsageError: a session that is open in this process governs one of the endpoints.
    """
    plan = load(config)
    for warning in plan.warnings:
        _log.warning("%s", warning)
    home = Home()
    log = LogObserver()
    failovers = Failovers(log)
    admission = admission_of(plan, random.Random(), Observers(log, failovers))  # noqa: S311 - jitter
    failovers.watch(admission)
    limiter = Limiter(admission, home.loop, home.clock)
    retries = Retries(admission, retry_budgets(plan))
    async with _following(plan, limiter, retries, failovers, home) as (live, scrapers, reload):
        try:
            yield Session(live, limiter, scrapers, retries, failovers, home, reload)
        finally:
            home.closed = True  # before others may claim the endpoints
            limiter.close()
            if admission.live:
                _log.warning("closed with %d requests still running", admission.live)


@asynccontextmanager
async def _following(
    plan: Plan, limiter: Limiter, retries: Retries, failovers: Failovers, home: Home
) -> AsyncIterator[tuple[Live, Scrapers, Reload]]:
    """Carry the plan out, and whatever its file says later, while the block lasts."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(scrape_session())
        scrapers = Scrapers(limiter, http, home, plan.config.forebay.scrape_interval_s)
        scrapers.claim(plan)
        stack.push_async_callback(scrapers.aclose)
        live = Live(plan, limiter, retries, failovers, scrapers)
        stack.push_async_callback(live.aclose)
        live.start()

        def apply(following: Plan) -> Diff:
            scrapers.claim(following)
            scrapers.interval_s = following.config.forebay.scrape_interval_s
            return live.apply(following)

        reload = Reload(plan, apply, live.needs_restart)
        await stack.enter_async_context(reload.following())
        yield live, scrapers, reload
