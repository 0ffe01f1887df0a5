"""A lock for what threads share, which the garbage collector may need as well."""

from __future__ import annotations

from collections import deque
from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class PostLock:
    """A lock, and a letter box for those who must not wait for it.

    A finalizer runs in whatever thread the collector happens to run, perhaps in the middle of what
    that thread does under this very lock. So it posts what it has to do: it is done at once if the
    lock is free, else by whoever holds it, when it lets go.

    Use it as ``with lock``; a thread that has it may take it again.
    """

    __slots__ = ("_depth", "_lock", "_posted")

    def __init__(self) -> None:
        self._lock = RLock()
        self._depth = 0
        self._posted: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *exc_info: object) -> None:
        self._depth -= 1
        last = not self._depth
        self._lock.release()
        if last and self._posted:
            self._empty()

    def post(self, do: Callable[[], None]) -> None:
        """Have something done under the lock, soon; it never waits, and must not raise."""
        self._posted.append(do)
        self._empty()

    def _empty(self) -> None:
        # Again and again: what is posted while its holder lets go is left to who looks after that.
        while self._posted and self._lock.acquire(blocking=False):
            try:
                if self._depth:
                    return  # this thread has the lock already, and looks when it lets go
                self._depth = 1
                try:
                    while self._posted:
                        self._posted.popleft()()
                finally:
                    self._depth = 0
            finally:
                self._lock.release()
