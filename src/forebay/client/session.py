"""The library: admission for the code of one event loop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, overload

from forebay.client.fan_out import FanOut, Item, Result, text_tokens
from forebay.client.holders import Holders
from forebay.client.slots import Slots
from forebay.config.embedding_status import embedding_endpoint_status
from forebay.config.status import status
from forebay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from forebay.adapters.engines.scraper import Scraper
    from forebay.client.home import Home
    from forebay.client.lease import Lease
    from forebay.client.slots import Priority
    from forebay.config import Plan
    from forebay.core.failovers import Failovers
    from forebay.core.retries import Retries
    from forebay.drivers.aio import AsyncLimiter
    from forebay.live import Live, Reload


class Session:
    """An open session. It belongs to the event loop in which it was opened; see `open`."""

    def __init__(  # noqa: PLR0913, PLR0917 - its parts; only `open` makes one
        self,
        live: Live,
        limiter: AsyncLimiter,
        scrapers: Mapping[str, Scraper],
        retries: Retries,
        failovers: Failovers,
        home: Home,
        reload: Reload,
    ) -> None:
        self._live = live
        self._limiter = limiter
        self._scrapers = scrapers
        self._failovers = failovers
        self._home = home
        self._reload = reload
        self._holders = Holders(limiter.admission)
        self._slots = Slots(live, limiter, scrapers, retries, self._holders, home)

    @property
    def _plan(self) -> Plan:
        return self._live.plan

    def __repr__(self) -> str:
        return f"<Session of {self._plan.file}>"

    @asynccontextmanager
    async def slot(
        self,
        model: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - also in force where nothing is awaited
        priority: Priority | None = None,
        tokens: float | None = None,
        weight: int | None = None,
    ) -> AsyncIterator[Lease]:
        """Hold a slot for one request: ``async with fb.slot("bge-m3") as lease``.

        Args:
            model: id of the model.
            timeout: seconds to wait for the slot; None: `forebay.timeouts.request_s`. It does not
                end the block; `asyncio.timeout` inside it does.
            priority: ``best-effort`` lowers the request below the model's own class.
            tokens: what the request makes the engine read, roughly; it takes as many slots as the
                model's `tokens_per_slot` says, if that is configured.
            weight: slots that it takes, whatever is configured; not with `tokens`.

        Raises:
            Rejected: there is no slot; `reason` says why, `retry_after_s` when to try again.
            UsageError: not where the session was opened, or waiting would never end.
        """
        ticket = self._slots.ticket(model, timeout, priority, tokens=tokens, weight=weight)
        with await self._slots.take(ticket) as lease:
            yield lease

    def try_slot(
        self,
        model: str,
        *,
        priority: Priority | None = None,
        tokens: float | None = None,
        weight: int | None = None,
    ) -> Lease | None:
        """Take a slot if one is free at once; it never waits. Use it as ``with lease``.

        For the arguments see `slot`.

        Raises:
            Rejected: there will be none, whether one waits or not.
            UsageError: not where the session was opened.
        """
        ticket = self._slots.ticket(model, None, priority, tokens=tokens, weight=weight)
        return self._slots.try_take(ticket)

    @overload
    async def map_concurrent(
        self,
        fn: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        model: str,
        timeout: float | None = None,  # noqa: ASYNC109
        priority: Priority | None = None,
        size: Callable[[Item], float | None] | None = None,
        on_error: Literal["raise"] = "raise",
    ) -> list[Result]: ...

    @overload
    async def map_concurrent(
        self,
        fn: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        model: str,
        timeout: float | None = None,  # noqa: ASYNC109
        priority: Priority | None = None,
        size: Callable[[Item], float | None] | None = None,
        on_error: Literal["collect"],
    ) -> list[Result | BaseException]: ...

    async def map_concurrent(  # noqa: PLR0913 - all but two by keyword, with defaults
        self,
        fn: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        model: str,
        timeout: float | None = None,  # noqa: ASYNC109 - for each item
        priority: Priority | None = None,
        size: Callable[[Item], float | None] | None = None,
        on_error: Literal["raise", "collect"] = "raise",
    ) -> list[Any]:
        """Call `fn` for each item, inside a slot each; results are in the order of the items.

        Items are taken as slots come free, so `items` may be endless in all but its results.
        `fn` finds its lease by `current_lease`. While no endpoint can serve, it waits. Where one
        fails, `fn` is called again for the item, with a lease of another one if there is any.

        Args:
            fn: what to do with an item.
            items: iterable or async iterable.
            model: id of the model.
            timeout: seconds that each item may wait for a slot; see `slot`.
            priority: see `slot`.
            size: an item's size, see `Lease.work`; None where that is unknown. By default, texts
                of embedding and reranking models count four characters as a token. It also is what
                `slot` has as `tokens`.
            on_error: ``raise``: the first error cancels all others, and is raised. ``collect``:
                an item's error is its result.

        Raises:
            Rejected: there is no slot; with ``collect`` only if there will be none for any item.
            UsageError: not where the session was opened, or waiting would never end.
        """
        if on_error not in {"raise", "collect"}:
            raise ValueError(f"on_error is {on_error!r}; it can be 'raise' or 'collect'")
        slots = self._slots
        slots.ticket(model, timeout, priority)  # so that what is wrong is told before any work
        if size is None:
            chat = self._plan.models[model].kind == "chat"
            size = _unknown if chat else text_tokens

        async def slot(tokens: float | None) -> Lease:
            return await slots.take_for_bulk(slots.ticket(model, timeout, priority, tokens=tokens))

        fan_out = FanOut(
            fn,
            slot=slot,
            elsewhere=slots.take_elsewhere,
            size=size,
            collect=on_error == "collect",
        )
        return await fan_out.run(items)

    def current_lease(self) -> Lease:
        """The lease whose block the running task is in, the innermost of several.

        Raises:
            UsageError: it is in none; a task that was started inside a block is not in it.
        """
        self._home.check()
        lease = self._holders.innermost(asyncio.current_task())
        if lease is None:
            raise UsageError("this task holds no slot: ask inside a slot, or in map_concurrent")
        return lease

    def status(self) -> dict[str, Any]:
        """Groups, endpoints and models at this instant, as in the gateway's ``/forebay/status``.

        Raises:
            UsageError: not where the session was opened.
        """
        self._home.check()
        limiter = self._limiter
        return {
            **status(self._plan, limiter.admission, self._scrapers, limiter.now()),
            "config": self._reload.status(),
        }

    def embedding_endpoint_status(self, key: str | None = None) -> dict[str, Any]:
        """Which endpoint embeds now, as in the gateway's ``/forebay/embedding-endpoint-status``.

        Args:
            key: an embedding model's id; None, ``embedding`` and ``embedding:fallback`` mean the
                one that is configured first.

        Raises:
            Rejected: there is no such embedding model.
            UsageError: not where the session was opened.
        """
        self._home.check()
        limiter = self._limiter
        return embedding_endpoint_status(
            self._plan, limiter.admission, self._failovers, limiter.now(), key
        )


def _unknown(item: object) -> None:
    """A prompt's length says nothing of how much will be generated."""
    del item
