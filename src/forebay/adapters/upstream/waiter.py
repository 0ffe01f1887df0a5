"""Who waits for a response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.adapters.upstream.deadline import Deadline

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from forebay.adapters.upstream.sink import Sink


class Waiter:
    """The one task that waits for more of a response, if one does.

    Args:
        loop: the running loop.
        name: the endpoint, for errors.
        on_deadline: called when nothing has come within `timeout_s`; it wakes the task.

    Attributes:
        future: what the task awaits, None while none does; done while set: it was cancelled.
        sink: takes pieces in the task's place, if there is one.
        timeout_s: how long the task waits, or waited, at most.
    """

    __slots__ = ("_deadline", "_loop", "_name", "future", "sink", "timeout_s")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, on_deadline: Callable[[], None]
    ) -> None:
        self.future: asyncio.Future[Awaitable[None] | None] | None = None
        self.sink: Sink | None = None
        self.timeout_s = 0.0
        self._loop = loop
        self._name = name
        self._deadline = Deadline(loop, on_deadline)

    def wait(
        self, timeout_s: float | None, sink: Sink | None = None
    ) -> asyncio.Future[Awaitable[None] | None]:
        """Return a future that is done when a head, a piece, the end or a failure has come.

        With a sink it is done when the end or a failure has come, and then gives None; or when the
        sink was full, with what the sink returned.

        Args:
            timeout_s: fail with `UpstreamTimeout` if nothing has come by then.
            sink: is handed the pieces as they come.

        Raises:
            RuntimeError: another task waits already.
        """
        if self.future is not None:
            raise RuntimeError(f"{self._name}: two tasks read one response at the same time")
        future = self.future = self._loop.create_future()
        self.sink = sink
        if timeout_s is not None:
            self.timeout_s = timeout_s
            self._deadline.set(timeout_s)
        return future

    def wake(self, full: Awaitable[None] | None = None) -> None:
        """Let the task go on, if one waits."""
        future = self.future
        if future is None:
            return
        self.future = self.sink = None
        self._deadline.clear()
        if not future.done():  # cancelled: its task is about to close the connection
            future.set_result(full)

    def fail(self, error: Exception) -> None:
        """Raise what its sink raised in the task, which waits."""
        future = self.future
        assert future is not None  # noqa: S101 - else there would be no sink
        self.future = self.sink = None
        future.set_exception(error)

    def close(self) -> None:
        """Let no time run out any more; the task waits on."""
        self._deadline.close()
