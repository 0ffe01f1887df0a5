"""Where the results of a fan-out go: into a list, or to a reader while it goes on.

Theory of operation. Results go to a queue; an item is taken only while fewer than `buffer` items
are between the iterator of items and the reader of results, so that memory stays flat however slow
that one is. For a thread, the fan-out runs in an event loop of a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

    from forebay.client.fan_out import Outlet

    # Runs a fan-out into an outlet.
    Run = Callable[[Outlet], Coroutine[Any, Any, None]]


class Results:
    """All results, in the order of the items."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    async def room(self) -> None:
        """See `Outlet`: there is always room."""

    def taken(self, index: int) -> None:
        """See `Outlet`."""
        del index
        self.all.append(None)

    def put(self, index: int, item: Any, result: Any) -> None:  # noqa: ANN401 - of any type
        """See `Outlet`."""
        del item
        self.all[index] = result


class _Flow:
    """Results as they come, or in the order of the items.

    Args:
        deliver: takes one.
        ordered: in the order of the items, and without them; else pairs of item and result.
        buffer: items that may have been taken, and their results not.
    """

    def __init__(self, deliver: Callable[[Any], None], *, ordered: bool, buffer: int) -> None:
        self._deliver = deliver
        self._ordered = ordered
        self._room = asyncio.Semaphore(buffer)
        self._early: dict[int, Any] = {}
        self._next = 0

    async def room(self) -> None:
        """See `Outlet`."""
        await self._room.acquire()

    def taken(self, index: int) -> None:
        """See `Outlet`."""

    def put(self, index: int, item: Any, result: Any) -> None:  # noqa: ANN401 - of any type
        """See `Outlet`."""
        if not self._ordered:
            self._deliver((item, result))
            return
        self._early[index] = result
        while self._next in self._early:
            self._deliver(self._early.pop(self._next))
            self._next += 1

    def read(self) -> None:
        """The reader has taken one."""
        self._room.release()


class _End(NamedTuple):
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class Stream:
    """Results of a fan-out, to be read once.

    Args:
        run: does it.
        ordered: see `Session.stream` and `Session.as_completed`.
        buffer: see there.

    Raises:
        ValueError: nothing fits into the buffer.
    """

    run: Run
    ordered: bool
    buffer: int

    def __post_init__(self) -> None:
        if self.buffer < 1:
            raise ValueError(f"buffer is {self.buffer}; at least one item has to fit")

    async def results(self) -> AsyncGenerator[Any, None]:
        """For a task."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        flow = _Flow(queue.put_nowait, ordered=self.ordered, buffer=self.buffer)
        task = asyncio.create_task(_all_of(self.run(flow), queue.put_nowait))
        try:
            while not isinstance(found := await queue.get(), _End):
                flow.read()
                yield found
        finally:
            task.cancel()
            await asyncio.wait([task])
        if found.error is not None:
            raise found.error

    def results_sync(self) -> Generator[Any, None, None]:
        """For a thread."""
        queue: SimpleQueue[Any] = SimpleQueue()
        runner = _Runner(self, queue.put)
        runner.start()
        try:
            while not isinstance(found := queue.get(), _End):
                runner.read()
                yield found
        finally:
            runner.stop()
        if found.error is not None:
            raise found.error


class _Runner(threading.Thread):
    """Runs a fan-out for a thread that reads it."""

    def __init__(self, stream: Stream, deliver: Callable[[Any], None]) -> None:
        super().__init__(name="forebay fan-out", daemon=True)
        self._stream = stream
        self._deliver = deliver
        self._ready = threading.Event()
        # None: it has not come so far.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._flow: _Flow
        self._task: asyncio.Task[None]

    def start(self) -> None:
        super().start()
        self._ready.wait()

    def run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - handed to the reader
            self._deliver(_End(error))
        finally:
            self._ready.set()

    async def _main(self) -> None:
        stream = self._stream
        self._loop = asyncio.get_running_loop()
        self._flow = _Flow(self._deliver, ordered=stream.ordered, buffer=stream.buffer)
        self._task = asyncio.create_task(_all_of(stream.run(self._flow), self._deliver))
        self._ready.set()
        await self._task

    def read(self) -> None:
        self._post(lambda: self._flow.read())  # noqa: PLW0108 - there is none before it runs

    def stop(self) -> None:
        """End it soon; what its functions do in threads by now is done first.

        It is not waited for: this may be the collector, in the middle of anything.
        """
        self._post(lambda: self._task.cancel())  # noqa: PLW0108 - as above

    def _post(self, do: Callable[[], object]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(do)


async def _all_of(run: Coroutine[Any, Any, None], deliver: Callable[[Any], None]) -> None:
    try:
        await run
    except BaseException as error:
        deliver(_End(error))
        if not isinstance(error, Exception):
            raise
    else:
        deliver(_End(None))
