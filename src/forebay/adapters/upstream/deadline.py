"""A timer that costs nothing to set anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# uvloop rounds timers to milliseconds: one that comes this early is due.
_TOLERANCE_S = 0.001


class Deadline:
    """Calls back once when the time that was set last has come.

    A deadline is set and cleared for every piece of a response, and hardly ever reached. So the
    loop's timer is left alone when the deadline moves away, and set again only when it fires too
    early: a few loop timers a minute in place of one a piece.
    """

    __slots__ = ("_callback", "_due", "_handle", "_loop", "_when")

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._due: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._when = 0.0

    def set(self, timeout_s: float) -> None:
        """Call back in `timeout_s`, and not when it was set to before."""
        self._due = due = self._loop.time() + timeout_s
        if self._handle is None:
            self._start(due)
        elif due < self._when:
            self._handle.cancel()
            self._start(due)

    def clear(self) -> None:
        """Do not call back."""
        self._due = None

    def close(self) -> None:
        """Do not call back, and let go of everything."""
        self._due = None
        self._callback = _nothing
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _start(self, when: float) -> None:
        self._when = when
        self._handle = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._handle = None
        due = self._due
        if due is None:
            return
        if due > self._loop.time() + _TOLERANCE_S:
            self._start(due)
        else:
            self._due = None
            self._callback()


def _nothing() -> None:
    """Stand in for a callback that is not to be held any more."""
