"""How a session begins and ends."""

from __future__ import annotations

import logging
import random
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from forebay.adapters.engines.http import scrape_session
from forebay.adapters.telemetry.log import LogObserver
from forebay.client.claims import CLAIMS
from forebay.client.home import Home
from forebay.client.session import Session
from forebay.config import load
from forebay.config.build import admission_of
from forebay.config.scrapers import fetch_of, scraper_of
from forebay.core.failovers import Failovers
from forebay.core.observer import Observers
from forebay.drivers.aio import AsyncLimiter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from forebay.adapters.engines.scraper import Scraper
    from forebay.config import Plan

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open(config: str | Path | None = None) -> AsyncIterator[Session]:  # noqa: A001 - `forebay.open`
    """Open a session: ``async with forebay.open("config.json") as fb``.

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
    limiter = AsyncLimiter(admission, home.loop)
    with CLAIMS.held((planned.endpoint.base_url for planned in plan.endpoints), home):
        try:
            async with _scraping(plan, limiter) as scrapers:
                yield Session(plan, limiter, scrapers, failovers, home)
        finally:
            limiter.close()
            if admission.live:
                _log.warning("closed with %d requests still running", admission.live)


@asynccontextmanager
async def _scraping(plan: Plan, limiter: AsyncLimiter) -> AsyncIterator[Mapping[str, Scraper]]:
    """Read every engine's metrics while the block lasts."""
    interval_s = plan.config.forebay.scrape_interval_s
    scrapers = {}
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(scrape_session())
        for planned in plan.endpoints:
            fetch = fetch_of(planned, http)
            scraper = scraper_of(planned, fetch, limiter, interval_s=interval_s)
            stack.push_async_callback(scraper.aclose)
            scraper.start()
            scrapers[planned.endpoint.id] = scraper
        yield scrapers
