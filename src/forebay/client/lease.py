"""A slot in a caller's hands."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from forebay.client.ending import ending_of
from forebay.core.model import Ending, Outcome, Timing, TimingKind
from forebay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from forebay.adapters.engines.scraper import Scraper
    from forebay.client.holders import Holders
    from forebay.client.home import Home
    from forebay.core.model import Endpoint, Ticket
    from forebay.drivers.aio import Lease as Slot

_CANCELLED = Ending(Outcome.CANCELLED)


class Lease:
    """One slot at one endpoint, held until its ``with`` or ``async with`` block ends.

    How the block ends tells how the endpoint did: normally, or by an exception (see
    `forebay.client.ending`). One that is never used is given back when it is garbage collected.

    Attributes:
        outcome: how the block ended; None before it has.
    """

    __slots__ = (
        "__weakref__",
        "_entered",
        "_first_token_told",
        "_granted_at",
        "_holders",
        "_home",
        "_ignored",
        "_scraper",
        "_size",
        "_slot",
        "_task",
        "outcome",
    )

    def __init__(self, slot: Slot, scraper: Scraper, holders: Holders, home: Home) -> None:
        self._slot = slot
        self._scraper = scraper
        self._holders = holders
        self._home = home
        self._granted_at = home.loop.time()
        self._task: asyncio.Task[Any] | None = None
        self._size: float | None = None
        self.outcome: Outcome | None = None
        self._entered = self._first_token_told = self._ignored = False

    def __repr__(self) -> str:
        state = "given back" if self._slot.settled else "held"
        return f"<Lease of {self.endpoint.id}, {state}>"

    @property
    def endpoint(self) -> Endpoint:
        """Where to send the request: `endpoint.base_url`."""
        return self._slot.endpoint

    @property
    def model(self) -> str:
        """The model's id there: a fallback may call it differently."""
        return self._slot.endpoint.model

    @property
    def ticket(self) -> Ticket:
        """What was asked for."""
        return self._slot.grant.ticket

    @property
    def is_probe(self) -> bool:
        """Whether this request tries an endpoint that was away."""
        return self._slot.is_probe

    @property
    def queued_s(self) -> float:
        """How long it was waited for, seconds."""
        return self._slot.queued_s

    def first_token(self, prompt_tokens: float = 1) -> None:
        """Tell that the first token of a stream has arrived; calls after the first do nothing.

        Args:
            prompt_tokens: tokens of the prompt; an estimate will do. Without it all prompts count
                as alike, which long ones among short ones are not.

        Raises:
            UsageError: not where the session was opened.
        """
        self._home.check()
        if not (self._first_token_told or self._ignored):
            self._first_token_told = True
            seconds = self._home.loop.time() - self._granted_at
            self._slot.timing(Timing(TimingKind.FIRST_TOKEN, seconds, max(1.0, prompt_tokens)))

    def work(self, size: float) -> None:
        """Tell how much the request was, so that its time can be judged against others'.

        Args:
            size: tokens that were read (embeddings, reranking) or generated, or any other unit
                that a request's time grows with, as long as it is one unit for each model.
        """
        self._size = size

    def ignore(self) -> None:
        """Let this request say nothing about its endpoint, however it ends."""
        self._ignored = True

    def give_back(self) -> None:
        """End the slot as if its request had been cancelled; once ended, nothing happens."""
        if not self._slot.settled:
            self._home.run(self._settling(_CANCELLED))

    def __enter__(self) -> Self:
        self._home.check()
        if self._entered or self._slot.settled:
            raise UsageError(f"{self!r} has been used before; ask for another one")
        self._entered = True
        self._task = asyncio.current_task()
        if self._task is not None:
            self._holders.add(self._task, self._slot.grant, self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ending = _CANCELLED
        try:
            ending = self._ending(error)
            self.outcome = ending.outcome
        finally:
            self._home.run(self._settling(ending))

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __del__(self) -> None:
        if not self._slot.settled:
            # Not now: the collector runs anywhere, perhaps in the middle of a decision.
            self._home.run_soon(self._settling(_CANCELLED))

    def _ending(self, error: BaseException | None) -> Ending:
        if self._ignored:
            return _CANCELLED
        if error is not None:
            return ending_of(error, self._scraper.engine)
        if self._size is None:
            return Ending(Outcome.OK)
        seconds = self._home.loop.time() - self._granted_at
        work = max(1.0, self._size)
        return Ending(Outcome.OK, (Timing(TimingKind.WORK, seconds, work),), work=work)

    def _settling(self, ending: Ending) -> Callable[[], None]:
        """What ends the slot; it outlives the lease."""
        slot, holders, task = self._slot, self._holders, self._task

        def settle() -> None:
            if task is not None:
                holders.remove(task, slot.grant)
            slot.settle(ending)

        return settle
