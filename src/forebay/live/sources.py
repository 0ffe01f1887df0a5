"""What the sources of a plan have found."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.adapters.discovery import Discovery, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from forebay.adapters.discovery import Source
    from forebay.config.plan import Plan
    from forebay.config.settings import DiscoverySettings

# How long an edit waits for what its new sources find, seconds.
_FIRST_S = 6.0
_POLL_S = 0.05


class Sources:
    """Follows every source of a plan, and keeps the last set that each has told.

    Args:
        on_change: called when one has found others than before.

    Attributes:
        changed: it has been since `take`.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._found: dict[str, frozenset[str]] = {}
        self._sources: dict[str, Source] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._settings: DiscoverySettings | None = None
        self.changed = False

    def begin(self, plan: Plan) -> bool:
        """Follow the sources of `plan` as well; returns whether that begins any."""
        settings = plan.config.forebay.discovery
        if settings != self._settings:
            self.close()
            self._settings = settings
        discovery = _discovery(settings)
        new = [url for url in plan.sources if url not in self._tasks]
        for url in new:
            source = self._sources[url] = discovery.source(parse(url))
            self._tasks[url] = asyncio.create_task(
                source.run(partial(self._tell, url)), name=f"discover {url}"
            )
        return bool(new)

    async def begun(self, plan: Plan) -> None:
        """Wait, but not for long, until each source of `plan` has found something or failed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_S):
                while not all(self._has_looked(url) for url in plan.sources):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)  # what fails tells nobody

    def follow(self, plan: Plan) -> None:
        """Follow the sources of `plan`, and no others."""
        self.begin(plan)
        for url in self._tasks.keys() - plan.sources:
            self._tasks.pop(url).cancel()
            del self._sources[url]
            self._found.pop(url, None)

    def take(self) -> Mapping[str, Collection[str]]:
        """All that is found now, by the sources' URLs."""
        self.changed = False
        return dict(self._found)

    def status(self) -> dict[str, Any]:
        """What each has found, and why it could not be looked up last."""
        return {
            url: {"found": sorted(self._found.get(url, ())), "failure": source.failure}
            for url, source in list(self._sources.items())  # other threads may ask
        }

    def close(self) -> None:
        """Follow none any more."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._sources.clear()

    def _has_looked(self, url: str) -> bool:
        return url in self._found or self._sources[url].failure is not None

    def _tell(self, url: str, found: frozenset[str]) -> None:
        if self._found.get(url) != found:
            self._found[url] = found
            self.changed = True
            self._on_change()


async def look_up(plan: Plan) -> dict[str, Any]:
    """What each source of a plan finds now, and why it cannot be looked up: see `Sources.status`.

    Where neither is known after some seconds, that is the failure.
    """
    sources = Sources(lambda: None)
    sources.begin(plan)
    try:
        await sources.begun(plan)
        looked_up, status = sources.take(), sources.status()
    finally:
        sources.close()
    for url, told in status.items():
        if url not in looked_up and told["failure"] is None:
            told["failure"] = f"{url}: no answer in {_FIRST_S:g} s"
    return status


def _discovery(settings: DiscoverySettings) -> Discovery:
    return Discovery.of(
        nameservers=settings.nameservers,
        interval_s=settings.interval_s,
        kubernetes_url=settings.kubernetes_url or "",
        kubernetes_token_file=settings.kubernetes_token_file,
        kubernetes_ca_file=settings.kubernetes_ca_file,
    )
