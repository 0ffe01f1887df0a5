"""From a planned endpoint to the reads of its engine's metrics."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from forebay.adapters.engines import registry
from forebay.adapters.engines.http import HttpFetch
from forebay.adapters.engines.scraper import Scraper

if TYPE_CHECKING:
    import aiohttp

    from forebay.config.plan import PlannedEndpoint
    from forebay.drivers.limiter import Limiter


def fetch_of(planned: PlannedEndpoint, session: aiohttp.ClientSession) -> HttpFetch:
    """What reads the endpoint's URLs, apart from the requests that are governed."""
    key = planned.api_key.get_secret_value() if planned.api_key else None
    return HttpFetch(session, api_key=key)


def scraper_of(
    planned: PlannedEndpoint, fetch: HttpFetch, limiter: Limiter, *, interval_s: float
) -> Scraper:
    """The endpoint's scraper, not started yet; it tells `limiter` what it reads."""
    name = planned.engine
    return Scraper(
        root=planned.url.root,
        model=planned.endpoint.model,
        fetch=fetch,
        engines=registry.engines() if name is None else (registry.engine(name),),
        on_signal=partial(limiter.signal, planned.endpoint.id),
        rng=random.Random(),  # noqa: S311 - it spreads reads, no more
        metrics_url=planned.metrics_url,
        interval_s=interval_s,
        clock=limiter.now,
    )
