"""An answer on its way from the loop in which it is made to whoever reads it."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import suppress
from math import inf
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from forebay.adapters.upstream import ACCEPTED
from forebay.drivers.waiters import TaskWaiter, ThreadWaiter
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from forebay.proxy.message import Headers

# What may lie here unread before the endpoint has to wait.
_MOST_UNREAD_BYTES = 256 * 1024
# How often a reader that hears nothing looks whether anything can come at all.
_LOOK_S = 1.0


class BrokenOff(ForebayError):  # noqa: N818 - what became of an answer
    """An answer that does not come to its end."""


class Reply:
    """A `forebay.proxy.message.Responder` that is read in another thread, or another task.

    One reader at a time.

    Args:
        loop: in which it is written.

    Attributes:
        status: of the answer; 0 before it has begun.
        headers: likewise.
        ended: it has all been written.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.started = False
        self.event_stream = False
        self.status = 0
        self.headers: Headers = []
        self._loop = loop
        self._pid = os.getpid()
        self._lock = Lock()
        self._pieces: deque[bytes] = deque()
        self._unread = 0  # bytes
        self.ended = False
        self._broken: Exception | None = None
        self._reader: TaskWaiter | ThreadWaiter | None = None
        self._room: asyncio.Future[None] | None = None  # done when some of it has been read

    # -- in that loop ------------------------------------------------------------------------------

    def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """See `Responder`."""
        self.headers, self.status, self.started = list(headers), status, True

    def write(self, piece: bytes) -> Awaitable[None]:
        """See `Responder`: over when enough has been read."""
        with self._lock:
            if piece:
                self._pieces.append(piece)
                self._unread += len(piece)
            if self._unread > _MOST_UNREAD_BYTES and self._room is None:
                self._room = self._loop.create_future()
            self._wake()
            return self._room or ACCEPTED

    def end(self, piece: bytes = b"") -> Awaitable[None]:
        """See `Responder`."""
        with self._lock:
            if piece:
                self._pieces.append(piece)
            self.ended = True
            self._wake()
        return ACCEPTED

    def cut(self) -> None:
        """See `Responder`."""
        self.break_off(BrokenOff("the answer was broken off: its endpoint failed in the middle"))

    def break_off(self, why: Exception) -> None:
        """Let the reader see that the answer is not whole, unless it is."""
        with self._lock:
            if not self.ended:
                self._broken = self._broken or why
                self._wake()

    # -- where it is read --------------------------------------------------------------------------

    async def head(self, within_s: float | None) -> None:
        """Wait for status and headers.

        Raises:
            TimeoutError: they have not come.
            BrokenOff: they will not come.
        """
        await self._wait(within_s)
        self._check()

    def head_sync(self, within_s: float | None) -> None:
        """`head`, and block this thread."""
        self._wait_sync(within_s)
        self._check()

    async def read(self, within_s: float | None) -> bytes:
        """Read the next piece, or nothing at the end.

        Raises:
            TimeoutError: none has come.
            BrokenOff: the rest will not come.
        """
        await self._wait(within_s)
        return self._take()

    def read_sync(self, within_s: float | None) -> bytes:
        """`read`, and block this thread."""
        self._wait_sync(within_s)
        return self._take()

    async def _wait(self, within_s: float | None) -> None:
        until = _until(within_s)
        while isinstance(waiter := self._waiter(TaskWaiter), TaskWaiter):
            seconds = self._to_wait_s(until)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await waiter.future

    def _wait_sync(self, within_s: float | None) -> None:
        until = _until(within_s)
        while isinstance(waiter := self._waiter(ThreadWaiter), ThreadWaiter):
            waiter.sleep(self._to_wait_s(until))

    def _to_wait_s(self, until: float) -> float:
        """How long to sleep before the next look.

        Raises:
            TimeoutError: it is time.
            BrokenOff: nothing will come, and nobody will say so.
        """
        if self._loop.is_closed():
            raise BrokenOff("the event loop of the session is closed")
        if os.getpid() != self._pid:
            raise BrokenOff("this is a forked child, and the answer is its parent's")
        left_s = until - monotonic()
        if left_s <= 0:
            raise TimeoutError
        return min(left_s, _LOOK_S)

    def _waiter(self, make: type[TaskWaiter | ThreadWaiter]) -> TaskWaiter | ThreadWaiter | None:
        """Who is to be woken when there is something to read; None if there is."""
        with self._lock:
            self._reader = None
            if not (self._pieces or self.ended or self._broken):
                self._reader = make()
            return self._reader

    def _take(self) -> bytes:
        with self._lock:
            if not self._pieces:
                self._check()
                return b""
            piece = b"".join(self._pieces) if len(self._pieces) > 1 else self._pieces[0]
            self._pieces.clear()
            self._unread = 0
            room, self._room = self._room, None
        if room is not None:
            with suppress(RuntimeError):  # closed: nothing more is written
                self._loop.call_soon_threadsafe(_finish, room)
        return piece

    def _check(self) -> None:
        if self._broken is not None and not self._pieces:
            raise self._broken

    def _wake(self) -> None:
        if self._reader is not None:
            self._reader.wake()  # if it is gone, nobody reads any more
            self._reader = None


def _finish(room: asyncio.Future[None]) -> None:
    if not room.done():
        room.set_result(None)


def _until(within_s: float | None) -> float:
    return inf if within_s is None else monotonic() + within_s
