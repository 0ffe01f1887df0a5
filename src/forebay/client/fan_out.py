"""One function over many items, as many at once as admission allows at each moment.

Theory of operation. There is no width to set. One *feeder*, the caller's own task, takes an item,
waits for a slot for it, starts a task that owns both, and goes on to the next item. So an item more
than there are slots has been taken at any time, however many are to come; one ticket waits in the
queue; and the width follows the limit by itself. A task whose endpoint fails gives its slot back
and asks for one elsewhere, beside the feeder.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from forebay.core.model import Reason
from forebay.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from forebay.client.lease import Lease

Item = TypeVar("Item")
Result = TypeVar("Result")

# Refusals that every further item would get as well.
_FOR_ALL = {Reason.UNKNOWN_MODEL, Reason.NO_ROOM, Reason.SHUTTING_DOWN}


class _Stop(Exception):  # noqa: N818 - no error: the error is kept apart
    """Ends the task group."""


class FanOut(Generic[Item, Result]):
    """One call of `map_concurrent`.

    Args:
        fn: what is done with each item.
        slot: waits for a slot, for an item of that size.
        elsewhere: waits for a slot at another endpoint, after that lease; None: there is no use.
        size: an item's size; None where it is not known.
        collect: errors are results; else the first one ends everything.
    """

    def __init__(
        self,
        fn: Callable[[Item], Awaitable[Result]],
        *,
        slot: Callable[[float | None], Awaitable[Lease]],
        elsewhere: Callable[[Lease], Awaitable[Lease | None]],
        size: Callable[[Item], float | None],
        collect: bool,
    ) -> None:
        self._fn = fn
        self._slot = slot
        self._elsewhere = elsewhere
        self._size = size
        self._collect = collect
        self._results: list[Any] = []
        self._error: BaseException | None = None

    async def run(self, items: Iterable[Item] | AsyncIterable[Item]) -> list[Any]:
        """Do it; once. Whatever happens, no task and no slot is left behind."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._feed(items, group)
        except* _Stop:
            pass
        if self._error is not None:
            raise self._error
        return self._results

    async def _feed(
        self, items: Iterable[Item] | AsyncIterable[Item], group: asyncio.TaskGroup
    ) -> None:
        try:
            async with aclosing(_each(items)) as each:
                async for item in each:
                    index = len(self._results)
                    self._results.append(None)
                    await self._take_up(group, index, item)
        except Exception as error:  # noqa: BLE001 - of the iterable, or no slot: raised by `run`
            self._stop(error)

    async def _take_up(self, group: asyncio.TaskGroup, index: int, item: Item) -> None:
        try:
            size = self._size(item)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            self._failed(index, error)
            return
        lease = await self._lease(index, size)
        if lease is not None:
            self._start(group, index, item, size, lease)

    def _start(
        self, group: asyncio.TaskGroup, index: int, item: Item, size: float | None, lease: Lease
    ) -> None:
        task = group.create_task(self._do(index, item, size, lease))
        # A task that is cancelled before its first step never enters the lease.
        task.add_done_callback(lambda _: lease.give_back())

    async def _lease(self, index: int, size: float | None) -> Lease | None:
        try:
            return await self._slot(size)
        except Rejected as error:
            if not self._collect or error.reason in _FOR_ALL:
                raise
            self._results[index] = error
            return None

    async def _do(self, index: int, item: Item, size: float | None, lease: Lease) -> None:
        try:
            self._results[index] = await self._result(item, size, lease)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._failed(index, error)  # `fn` raised it, though nobody cancelled it
        except Exception as error:  # noqa: BLE001 - handed to the caller
            self._failed(index, error)

    async def _result(self, item: Item, size: float | None, lease: Lease) -> Result:
        while True:
            try:
                with lease:
                    if size is not None:
                        lease.work(size)
                    return await self._fn(item)
            except Exception:
                another = await self._elsewhere(lease)
                if another is None:
                    raise
                lease = another

    def _failed(self, index: int, error: BaseException) -> None:
        if self._collect:
            self._results[index] = error
        else:
            self._stop(error)

    def _stop(self, error: BaseException) -> None:
        """Cancel everything; of several errors the first is raised."""
        if self._error is None:
            self._error = error
        raise _Stop


def text_tokens(item: object) -> float | None:
    """Roughly the tokens of a text or of several: four characters each; None for other things."""
    if isinstance(item, str):
        return len(item) / 4
    if isinstance(item, list | tuple) and all(isinstance(text, str) for text in item):
        return sum(map(len, item)) / 4
    return None


async def _each(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncGenerator[Item, None]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
