"""The library: admission for the code of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from forebay.client.asking import Asking
from forebay.client.embedding import Embedding
from forebay.client.holders import Holders
from forebay.client.http.clients import Clients
from forebay.client.slots import Asked, Slots
from forebay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.client.home import Home
    from forebay.client.http.clients import Library
    from forebay.client.http.inside import Inside
    from forebay.client.lease import Lease
    from forebay.client.slots import Priority
    from forebay.proxy.deployment import Deployment


class Session(Embedding):
    """An open session; see `open` and `open_sync`. Any thread and any event loop may use it."""

    def __init__(self, deployment: Deployment, inside: Inside, home: Home) -> None:
        self._home = home
        self._clients = Clients(inside)
        self._holders = Holders(deployment.limiter.admission, deployment.limiter.lock)
        self._close: Callable[[], None] | None = None
        super().__init__(deployment, Slots(deployment, self._holders, home), inside)

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

    def __repr__(self) -> str:
        return f"<Session of {self._deployment.plan.file}>"

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

    def http_client(
        self,
        *,
        priority: Priority | None = None,
        timeout: float | None = None,
        library: Library | None = None,
    ) -> Any:  # noqa: ANN401 - of a library that need not be there
        """An ``AsyncClient`` of httpx2 or httpx that is governed here: no gateway, no port.

        ``AsyncOpenAI(api_key="-", http_client=fb.http_client())``, or whatever takes such a client.
        Each request goes by its model, as the gateway's would: it waits for its slot, goes where
        there is room, and elsewhere if it fails there. An answer that streams holds its slot until
        it has been read, is closed, or is collected. Any event loop may use it.

        Args:
            priority: ``best-effort`` lowers its requests below the model's own class.
            timeout: seconds in which nothing may come, the wait for the slot among them; None:
                the deadlines of the configuration hold.
            library: ``httpx`` or ``httpx2``; None: that which the installed ``openai`` is made
                with.

        Raises:
            UsageError: the library is not installed, the session is closed, or this is a forked
                child.
        """
        self._home.check()
        return self._clients.asynchronous(library, priority, timeout)

    def http_client_sync(
        self,
        *,
        priority: Priority | None = None,
        timeout: float | None = None,
        library: Library | None = None,
    ) -> Any:  # noqa: ANN401 - of a library that need not be there
        """A ``Client`` in place of the ``AsyncClient`` of `http_client`, for any thread.

        Raises:
            UsageError: see `http_client`; a request raises it where the event loop runs that
                serves the session.
        """
        self._home.check()
        return self._clients.synchronous(library, priority, timeout)

    def status(self) -> dict[str, Any]:
        """Groups, endpoints and models at this instant, as in the gateway's ``/forebay/status``.

        Raises:
            UsageError: the session is closed, or this is a forked child.
        """
        self._home.check()
        return self._deployment.status()

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
        return self._deployment.embedding_endpoint_status(key)
