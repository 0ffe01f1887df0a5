"""`Session.slot`: a slot that is asked for where its block begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.client.home import refuse_to_block
from forebay.errors import UsageError

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.client.lease import Lease
    from forebay.client.slots import Asked, Slots


class Asking:
    """Waits for a slot when it is entered: ``async with`` in a task, ``with`` in a thread.

    Args:
        slots: has them.
        asked: what is asked for, when it is.
    """

    __slots__ = ("_asked", "_lease", "_slots", "_used")

    def __init__(self, slots: Slots, asked: Asked) -> None:
        self._slots = slots
        self._asked = asked
        self._lease: Lease | None = None
        self._used = False

    async def __aenter__(self) -> Lease:
        self._check()
        self._lease = lease = await self._slots.take(self._slots.ticket(self._asked))
        return lease.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __enter__(self) -> Lease:
        refuse_to_block("write `async with fb.slot(…)`")
        self._check()
        self._lease = lease = self._slots.take_sync(self._slots.ticket(self._asked))
        return lease.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._lease is not None:
            self._lease.__exit__(kind, error, traceback)

    def _check(self) -> None:
        if self._used:
            raise UsageError("this slot has been used before: call `fb.slot(…)` for each block")
        self._used = True
