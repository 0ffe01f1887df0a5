"""How a fan-out calls the caller's function, each time in a slot: in a task, or in a thread."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from forebay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forebay.client.lease import Lease

Item = TypeVar("Item")
Result = TypeVar("Result")

# As good as none: admission says how many run. A thread is made only when none is idle.
_MOST_THREADS = 10_000


class InThreads(Generic[Item, Result]):
    """The job of a function that blocks; a context, whose end waits for the threads that work.

    Raises:
        UsageError: `fn` is no function that blocks.
    """

    def __init__(self, fn: Callable[[Item], Result]) -> None:
        if asyncio.iscoroutinefunction(fn):
            raise UsageError(
                f"{fn!r} is a coroutine function, which a thread cannot call: give one that "
                "blocks, or use the edition without `_sync`"
            )
        self._fn = fn
        self._pool = ThreadPoolExecutor(_MOST_THREADS, "forebay")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._pool.shutdown()

    async def __call__(self, lease: Lease, size: float | None, item: Item) -> Result:
        """Do it for one item."""
        running = self._pool.submit(self._do, lease, size, item)
        done = asyncio.wrap_future(running)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if running.cancel():
                lease.give_back()
            # A thread cannot be stopped, and the GPU works for it: who cancels again waits too.
            while not done.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([done])
            if not done.cancelled():
                done.exception()  # nobody asks for it any more
            raise

    def _do(self, lease: Lease, size: float | None, item: Item) -> Result:
        # The slot is given back here, and not in the loop, which the items' iterator may block.
        with lease:
            if size is not None:
                lease.work(size)
            try:
                return self._fn(item)
            except StopIteration as error:  # no future can have it for its result
                raise RuntimeError(f"{self._fn!r} raised StopIteration") from error


class InTasks(Generic[Item, Result]):
    """The job of a function that does not block."""

    def __init__(self, fn: Callable[[Item], Awaitable[Result]]) -> None:
        self._fn = fn

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    async def __call__(self, lease: Lease, size: float | None, item: Item) -> Result:
        """Do it for one item."""
        with lease:
            if size is not None:
                lease.work(size)
            doing = self._fn(item)
            if not hasattr(doing, "__await__"):
                raise UsageError(
                    f"{self._fn!r} gave {type(doing).__name__!r}, which cannot be awaited: give a "
                    "coroutine function, or use the edition with `_sync`"
                )
            return await doing
