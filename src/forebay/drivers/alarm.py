"""Something that an event loop does at a time, which any thread may move."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from threading import RLock


class Alarm:
    """Rings in a loop's thread.

    Args:
        loop: that of the thread that makes it.
        clock: seconds; may be another one than the loop's.
        lock: held whenever the alarm is set, and while it rings.
        ring: what is done then.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        lock: RLock,
        ring: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._thread = get_ident()
        self._clock = clock
        self._lock = lock
        self._ring = ring
        self._at = inf  # of the timer too; uvloop's handle of a short time does not tell
        self._timer: asyncio.Handle | None = None

    def set(self, at: float) -> None:
        """Ring at that time, if not before."""
        if at < self._at:
            self._at = at
            self.in_loop(self._arm)

    def clear(self) -> None:
        """Do not ring any more."""
        self._at = inf
        self.in_loop(self._arm)

    def in_loop(self, do: Callable[[], object]) -> None:
        """Do something in the loop's thread, soon: this may be in the middle of anything there.

        Nothing happens where the loop is closed: what it kept ended with it.
        """
        with suppress(RuntimeError):  # closed
            if get_ident() == self._thread:
                self._loop.call_soon(do)
            else:
                self._loop.call_soon_threadsafe(do)

    def _arm(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            if self._at < inf:
                delay_s = max(0.0, self._at - self._clock())
                self._timer = self._loop.call_later(delay_s, self._go_off)

    def _go_off(self) -> None:
        with self._lock:
            self._timer, self._at = None, inf
            self._ring()
