"""The library: admission for the code of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from forebay.client.asking import Asking
from forebay.client.holders import Holders
from forebay.client.slots import Asked, Slots
from forebay.client.streaming import Streaming
from forebay.config.embedding_status import embedding_endpoint_status
from forebay.config.status import status
from forebay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from forebay.adapters.engines.scraper import Scraper
    from forebay.client.home import Home
    from forebay.client.lease import Lease
    from forebay.client.slots import Priority
    from forebay.config import Plan
    from forebay.core.failovers import Failovers
    from forebay.core.retries import Retries
    from forebay.drivers.limiter import Limiter
    from forebay.live import Live, Reload


class Session(Streaming):
    """An open session; see `open` and `open_sync`. Any thread and any event loop may use it."""

    def __init__(  # noqa: PLR0913, PLR0917 - its parts; only `opening` makes one
        self,
        live: Live,
        limiter: Limiter,
        scrapers: Mapping[str, Scraper],
        retries: Retries,
        failovers: Failovers,
        home: Home,
        reload: Reload,
    ) -> None:
        self._limiter = limiter
        self._scrapers = scrapers
        self._failovers = failovers
        self._home = home
        self._reload = reload
        self._holders = Holders(limiter.admission, limiter.lock)
        self._close: Callable[[], None] | None = None
        super().__init__(live, Slots(live, limiter, scrapers, retries, self._holders, home))

    def close(self) -> None:
        """Close a session of `open_sync`: who waits for a slot is refused; again: nothing happens.

        Raises:
            UsageError: it was opened by `open`, whose block closes it.
        """
        if self._close is None:
            raise UsageError("this session is closed by the end of its `async with` block")
        self._close()

    def closes_by(self, close: Callable[[], None]) -> None:
        """Be closed by that; for `open_sync`."""
        self._close = close

    def __enter__(self) -> Self:
        self._home.check()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def _plan(self) -> Plan:
        return self._live.plan

    def __repr__(self) -> str:
        return f"<Session of {self._plan.file}>"

    def slot(
        self,
        model: str,
        *,
        timeout: float | None = None,
        priority: Priority | None = None,
        tokens: float | None = None,
        weight: int | None = None,
    ) -> Asking:
        """Hold a slot for one request: ``async with fb.slot("bge-m3") as lease``.

        It is asked for when the block is entered. In a thread where no event loop runs, it is
        ``with fb.slot("bge-m3") as lease``.

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
            UsageError: the session is closed, this is a forked child, or waiting would never end.
        """
        return Asking(self._slots, Asked(model, timeout, priority, tokens, weight))

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
            UsageError: the session is closed, or this is a forked child.
        """
        slots = self._slots
        return slots.try_take(slots.ticket(Asked(model, None, priority, tokens, weight)))

    def current_lease(self) -> Lease:
        """The lease whose block the running task or thread is in, the innermost of several.

        Raises:
            UsageError: it is in none; a task that was started inside a block is not in it.
        """
        if self._home.forked:
            self._home.check()
        lease = self._holders.innermost()
        if lease is None:
            raise UsageError(
                "this task or thread holds no slot: ask inside a slot, or in map_concurrent"
            )
        return lease

    def status(self) -> dict[str, Any]:
        """Groups, endpoints and models at this instant, as in the gateway's ``/forebay/status``.

        Raises:
            UsageError: the session is closed, or this is a forked child.
        """
        self._home.check()
        limiter = self._limiter
        with limiter.lock:
            now = status(self._plan, limiter.admission, self._scrapers, limiter.now())
        return {**now, "config": self._reload.status()}

    def embedding_endpoint_status(self, key: str | None = None) -> dict[str, Any]:
        """Which endpoint embeds now, as in the gateway's ``/forebay/embedding-endpoint-status``.

        Args:
            key: an embedding model's id; None, ``embedding`` and ``embedding:fallback`` mean the
                one that is configured first.

        Raises:
            Rejected: there is no such embedding model.
            UsageError: the session is closed, or this is a forked child.
        """
        self._home.check()
        limiter = self._limiter
        with limiter.lock:
            return embedding_endpoint_status(
                self._plan, limiter.admission, self._failovers, limiter.now(), key
            )
