"""Who waits for a slot: a task of some event loop, or a thread.

A waiter is told under the limiter's lock, by any thread. What it was told is kept in it, so that it
can be found whatever becomes of the one who waits; waking that one comes second, and may fail.
"""

from __future__ import annotations

import asyncio
from threading import TIMEOUT_MAX, Lock, get_ident
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from forebay.core.admission import Grant
    from forebay.errors import Rejected

    Answer: TypeAlias = Grant | Rejected


class Waiter(Protocol):
    """One who waits.

    Attributes:
        answer: what came of it; None while it waits.
    """

    answer: Answer | None

    def wake(self) -> bool:
        """Wake whoever waits, from any thread; False if there is nobody any more."""


class Nobody:
    """Does not wait at all."""

    answer: Answer | None = None

    def wake(self) -> bool:
        """See `Waiter`."""
        return True


class TaskWaiter:
    """A task of the loop that runs in this thread.

    Attributes:
        loop: that one.
        future: done when it is told.
    """

    __slots__ = ("_thread", "answer", "future", "loop")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.loop = asyncio.get_running_loop()
        self.future = self.loop.create_future()
        self._thread = get_ident()

    def wake(self) -> bool:
        """See `Waiter`."""
        try:
            if get_ident() == self._thread:
                return self._set()
            self.loop.call_soon_threadsafe(self._set)
        except RuntimeError:  # the loop is closed
            return False
        return True  # if it has been cancelled in the meantime, it sees what it was told

    def _set(self) -> bool:
        if self.future.done():  # cancelled, and not yet run to say so
            return False
        self.future.set_result(None)
        return True


class ThreadWaiter:
    """A thread."""

    __slots__ = ("_asleep", "answer")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self._asleep = Lock()
        self._asleep.acquire()

    def wake(self) -> bool:
        """See `Waiter`."""
        self._asleep.release()
        return True

    def sleep(self, seconds: float) -> None:
        """Wait to be woken, for so long at most."""
        self._asleep.acquire(timeout=min(max(seconds, 0.0), TIMEOUT_MAX))
