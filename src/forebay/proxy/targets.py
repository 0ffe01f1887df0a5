"""Every endpoint as the proxy needs it, while endpoints come and go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.adapters.upstream import Upstream, UpstreamSettings
from forebay.config.scrapers import fetch_of, scraper_of
from forebay.proxy.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp

    from forebay.adapters.telemetry.requests import RequestObserver
    from forebay.config.plan import PlannedEndpoint
    from forebay.config.settings import ForebaySettings
    from forebay.drivers.limiter import Limiter


class Targets(dict[str, Target]):
    """Endpoints by id, with their clients and scrapers; those that drain as well.

    Args:
        limiter: hears what the engines say.
        session: for all scrapes; the caller closes it.
        settings: Forebay's own, as they are now; the caller moves them.
        observer: hears of endpoints that are gone.
    """

    def __init__(
        self,
        limiter: Limiter,
        session: aiohttp.ClientSession,
        settings: ForebaySettings,
        observer: RequestObserver,
    ) -> None:
        super().__init__()
        self._limiter = limiter
        self._session = session
        self._retired: list[Upstream] = []
        self._on_change: list[Callable[[], None]] = []
        self._observer = observer
        self.settings = settings

    def on_change(self, changed: Callable[[], None]) -> None:
        """Have something called when an endpoint is there, is gone, or has another client."""
        self._on_change.append(changed)

    def connect(self, planned: PlannedEndpoint) -> None:
        """Be ready to reach an endpoint; requests under way go on as they began."""
        settings, id_ = self.settings, planned.endpoint.id
        times = settings.timeouts
        upstream = Upstream(
            planned.endpoint.base_url,
            UpstreamSettings(connect_timeout_s=times.connect_s, unreachable_s=times.unreachable_s),
        )
        fetch = fetch_of(planned, self._session)
        scraper = scraper_of(planned, fetch, self._limiter, interval_s=settings.scrape_interval_s)
        before = self.get(id_)
        if before is not None:
            scraper.follow(before.scraper)
            self._retire(before)
        scraper.start()
        self[id_] = Target.make(planned, upstream, scraper, fetch)
        self._tell()

    def disconnect(self, endpoint_id: str) -> None:
        """Forget an endpoint at which nothing runs any more."""
        self._retire(self.pop(endpoint_id))
        self._observer.forget(endpoint_id)
        self._tell()

    async def aclose(self) -> None:
        """Close every connection, and read no more."""
        for target in self.values():
            await target.scraper.aclose()
        upstreams = [*(target.upstream for target in self.values()), *self._retired]
        await asyncio.gather(*(upstream.aclose() for upstream in upstreams))

    def _tell(self) -> None:
        for changed in self._on_change:
            changed()

    def _retire(self, target: Target) -> None:
        target.scraper.stop()
        target.upstream.retire()
        self._retired = [each for each in self._retired if each.stats().open]
        self._retired.append(target.upstream)
