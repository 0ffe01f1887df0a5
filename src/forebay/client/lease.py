"""A slot in a caller's hands."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self

from forebay.client.ending import ending_of
from forebay.client.holders import holder
from forebay.core.model import Ending, Outcome, Timing, TimingKind
from forebay.errors import UsageError

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.adapters.engines.scraper import Scraper
    from forebay.client.holders import Holders
    from forebay.client.home import Home
    from forebay.core.model import Endpoint, Ticket
    from forebay.drivers.lease import Lease as Slot
    from forebay.drivers.limiter import Limiter

_CANCELLED = Ending(Outcome.CANCELLED)


class Lease:
    """One slot at one endpoint, held until its ``with`` or ``async with`` block ends.

    How the block ends tells how the endpoint did: normally, or by an exception (see
    `forebay.client.ending`). One that is never used is given back when it is garbage collected. Any
    thread and any loop may use it, and give it back.

    Attributes:
        outcome: how the block ended; None before it has.
    """

    __slots__ = (
        "__weakref__",
        "_entered",
        "_first_token_told",
        "_granted_at",
        "_holder",
        "_holders",
        "_home",
        "_ignored",
        "_limiter",
        "_longest_rest_s",
        "_scraper",
        "_size",
        "_slot",
        "outcome",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - only `Slots` makes one
        self,
        slot: Slot,
        limiter: Limiter,
        scraper: Scraper,
        holders: Holders,
        home: Home,
        longest_rest_s: float,
    ) -> None:
        self._slot = slot
        self._limiter = limiter
        self._scraper = scraper
        self._holders = holders
        self._home = home
        self._longest_rest_s = longest_rest_s
        self._granted_at = home.clock()
        self._holder = 0  # the identity of whoever runs its block
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
        """Whether it tries an endpoint that was away; the others go elsewhere meanwhile."""
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
            UsageError: the session is closed, or this is a forked child.
        """
        self._home.check()
        if not (self._first_token_told or self._ignored):
            self._first_token_told = True
            seconds = self._home.clock() - self._granted_at
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
        self._settle(_CANCELLED)

    def __enter__(self) -> Self:
        self._home.check()
        if self._entered or self._slot.settled:
            raise UsageError(f"{self!r} has been used before; ask for another one")
        self._entered = True
        who = holder()
        self._holder = id(who)
        self._holders.add(who, self._slot.grant, self)
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
            self._settle(ending)

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
        if not (self._slot.settled or self._home.forked):
            # Not now: the collector runs anywhere, perhaps in the middle of a decision.
            settle = partial(_settle, self._slot, self._holders, self._holder, _CANCELLED)
            self._limiter.later(settle)

    def _ending(self, error: BaseException | None) -> Ending:
        if self._ignored:
            return _CANCELLED
        if error is not None:
            return ending_of(error, self._scraper.engine, longest_rest_s=self._longest_rest_s)
        if self._size is None:
            return Ending(Outcome.OK)
        seconds = self._home.clock() - self._granted_at
        work = max(1.0, self._size)
        return Ending(Outcome.OK, (Timing(TimingKind.WORK, seconds, work),), work=work)

    def _settle(self, ending: Ending) -> None:
        if not (self._slot.settled or self._home.forked):  # the parent settles what it holds
            _settle(self._slot, self._holders, self._holder, ending)


def _settle(slot: Slot, holders: Holders, holder: int, ending: Ending) -> None:
    if holder:
        holders.remove(holder, slot.grant)
    slot.settle(ending)
