"""The reads of every endpoint's metrics, while endpoints come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.client.claims import CLAIMS
from forebay.config.scrapers import fetch_of, scraper_of

if TYPE_CHECKING:
    import aiohttp

    from forebay.adapters.engines.scraper import Scraper
    from forebay.client.home import Home
    from forebay.config import Plan, PlannedEndpoint
    from forebay.drivers.limiter import Limiter


class Scrapers(dict[str, "Scraper"]):
    """Scrapers by endpoint id, of those that drain as well; each endpoint is claimed meanwhile.

    Args:
        limiter: hears what the engines say.
        session: for all scrapes; the caller closes it.
        home: of the session that the endpoints are claimed for.
        interval_s: seconds between reads; the caller moves it.
    """

    def __init__(
        self, limiter: Limiter, session: aiohttp.ClientSession, home: Home, interval_s: float
    ) -> None:
        super().__init__()
        self._limiter = limiter
        self._session = session
        self._home = home
        self._base_urls: dict[str, str] = {}
        self.interval_s = interval_s

    def claim(self, plan: Plan) -> None:
        """Claim every endpoint of a plan, in addition to those that are claimed.

        Raises:
            UsageError: another open session has one of them; then nothing has changed.
        """
        CLAIMS.claim((planned.endpoint.base_url for planned in plan.endpoints), self._home)

    def connect(self, planned: PlannedEndpoint) -> None:
        """Read an endpoint's metrics from now on, perhaps in another way than before."""
        id_, base_url = planned.endpoint.id, planned.endpoint.base_url
        fetch = fetch_of(planned, self._session)
        scraper = scraper_of(planned, fetch, self._limiter, interval_s=self.interval_s)
        if id_ in self:
            scraper.follow(self[id_])
            self._stop(id_, unless=base_url)
        scraper.start()
        self[id_] = scraper
        self._base_urls[id_] = base_url

    def disconnect(self, endpoint_id: str) -> None:
        """Read an endpoint's metrics no more, and let others claim it."""
        self._stop(endpoint_id)
        del self[endpoint_id], self._base_urls[endpoint_id]

    async def aclose(self) -> None:
        """Read no more, and let go of every claim."""
        for scraper in self.values():
            await scraper.aclose()
        CLAIMS.let_go_all(self._home)

    def _stop(self, endpoint_id: str, unless: str = "") -> None:
        self[endpoint_id].stop()
        base_url = self._base_urls[endpoint_id]
        others = (url for id_, url in self._base_urls.items() if id_ != endpoint_id)
        if base_url != unless and base_url not in others:  # two models may be on one server
            CLAIMS.let_go(base_url, self._home)
