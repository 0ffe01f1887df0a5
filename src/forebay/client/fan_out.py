"""One function over many items, as many at once as admission allows at each moment.

Theory of operation. There is no width to set. One *feeder* takes an item, waits for a slot for it,
starts a task that owns both, and goes on to the next item. So an item more than there are slots has
been taken at any time, however many are to come; one ticket waits in the queue; and the width
follows the limit by itself. A task whose endpoint fails gives its slot back and asks for one
elsewhere, beside the feeder. What comes of each item goes to an `Outlet`, which may hold the feeder
back while nobody takes the results.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from forebay.core.model import Reason
from forebay.errors import ItemsError, Rejected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from forebay.client.progress import Tally
    from forebay.client.retry import Retry

Item = TypeVar("Item")
Result = TypeVar("Result")

# Refusals that every further item would get as well.
FOR_ALL = {Reason.UNKNOWN_MODEL, Reason.NO_ROOM, Reason.SHUTTING_DOWN}


class _Stop(Exception):  # noqa: N818 - no error: the error is kept apart
    """Ends the task group."""


class Outlet(Protocol):
    """Where results go."""

    async def room(self) -> None:
        """Wait until one more item may be taken."""

    def taken(self, index: int) -> None:
        """An item has been taken; they are counted from 0."""

    def put(self, index: int, item: Any, result: Any) -> None:  # noqa: ANN401 - of any type
        """What came of an item; an exception if it failed, and failures are collected."""


class Held(Protocol):
    """What an item needs while it is worked on: a slot."""

    def give_back(self) -> None:
        """Need it no more; again: nothing happens."""


@dataclass(frozen=True, slots=True)
class Job(Generic[Item, Result]):
    """What is done with each item.

    Args:
        call: does it, in a slot: lease, size and item.
        slot: waits for a slot, for an item of that size.
        elsewhere: waits for a slot at another endpoint, after that lease; None: there is no use.
        size: an item's size; None where it is not known.
        retry: how errors are tried again.
        collect: errors are results; else the first one ends everything.
    """

    call: Callable[[Any, float | None, Item], Awaitable[Result]]
    slot: Callable[[float | None], Awaitable[Held]]
    elsewhere: Callable[[Any], Awaitable[Held | None]]
    size: Callable[[Item], float | None]
    retry: Retry | None
    collect: bool


class FanOut(Generic[Item, Result]):
    """One job over many items.

    Args:
        job: what is done with each.
        outlet: gets the results.
        tally: counts them.
    """

    def __init__(self, job: Job[Item, Result], outlet: Outlet, tally: Tally) -> None:
        self._job = job
        self._outlet = outlet
        self._tally = tally
        self._error: BaseException | None = None

    async def run(self, items: Iterable[Item] | AsyncIterable[Item]) -> None:
        """Do it; once. Whatever happens, no task and no slot is left behind."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._feed(items, group)
        except* _Stop:
            pass
        if self._error is not None:
            raise self._error

    async def _feed(
        self, items: Iterable[Item] | AsyncIterable[Item], group: asyncio.TaskGroup
    ) -> None:
        index = 0
        async with aclosing(each_of(items)) as each:
            while True:
                await self._outlet.room()
                try:
                    item = await anext(each)
                except StopAsyncIteration:
                    return
                except Exception as error:  # noqa: BLE001 - of the caller's iterable
                    self._items_failed(error, index)
                    return
                self._outlet.taken(index)
                await self._take_up(group, index, item)
                index += 1

    def _items_failed(self, error: Exception, taken: int) -> None:
        """No further item can be taken; what runs is done first where failures are collected."""
        failed = error if isinstance(error, ItemsError) else items_error(error, taken)
        if not self._job.collect:
            self._stop(failed)
        self._error = failed

    async def _take_up(self, group: asyncio.TaskGroup, index: int, item: Item) -> None:
        try:
            size = self._job.size(item)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            self._failed(index, item, error)
            return
        lease = await self._lease(index, item, size)
        if lease is not None:
            task = group.create_task(self._do(index, item, size, lease))
            # A task that is cancelled before its first step never enters the lease.
            task.add_done_callback(lambda _: lease.give_back())

    async def _lease(self, index: int, item: Item, size: float | None) -> Held | None:
        try:
            return await self._job.slot(size)
        except Rejected as error:
            if not self._job.collect or error.reason in FOR_ALL:
                self._stop(error)
            self._failed(index, item, error)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            self._stop(error)
        return None

    async def _do(self, index: int, item: Item, size: float | None, lease: Held) -> None:
        try:
            result = await self._result(item, size, lease)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._failed(index, item, error)  # raised by the job, though nobody cancelled it
        except Exception as error:  # noqa: BLE001 - handed to the caller
            self._failed(index, item, error)
        else:
            self._outlet.put(index, item, result)
            self._count(failed=False)

    async def _result(self, item: Item, size: float | None, lease: Held) -> Result:
        job, attempt = self._job, 1
        while True:
            try:
                return await job.call(lease, size, item)
            except Exception as error:
                lease.give_back()  # if it was not even used
                another = await job.elsewhere(lease)
                if another is None:
                    if job.retry is None or not job.retry.tries(error, attempt):
                        raise
                    await asyncio.sleep(job.retry.pause_s(attempt))
                    another, attempt = await job.slot(size), attempt + 1
                lease = another

    def _failed(self, index: int, item: Item, error: BaseException) -> None:
        if not self._job.collect:
            self._stop(error)
        self._outlet.put(index, item, error)
        self._count(failed=True)

    def _count(self, *, failed: bool) -> None:
        try:
            self._tally.count(failed=failed)
        except Exception as error:  # noqa: BLE001 - of the caller's callback
            self._stop(error)

    def _stop(self, error: BaseException) -> None:
        """Cancel everything; of several errors the first is raised.

        That the items came to an end is none: what had been taken was to be done all the same.
        """
        if self._error is None or isinstance(self._error, ItemsError):
            self._error = error
        raise _Stop


def items_error(error: Exception, taken: int) -> ItemsError:
    """What is raised where the caller's iterator raised after so many items."""
    failed = ItemsError(
        f"the items' iterator raised {error!r} after {taken} items; make it skip what it "
        "cannot give, or catch that in it"
    )
    failed.__cause__ = error
    return failed


def text_tokens(item: object) -> float | None:
    """Roughly the tokens of a text or of several: four characters each; None for other things."""
    if isinstance(item, str):
        return len(item) / 4
    if isinstance(item, list | tuple) and all(isinstance(text, str) for text in item):
        return sum(map(len, item)) / 4
    return None


async def each_of(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncGenerator[Item, None]:
    """The items, one after the other."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
