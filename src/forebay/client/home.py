"""Where a session lives: one process, and one event loop of it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from forebay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_WAY_OUT = (
    "open one session, and use it where it was opened; several loops, threads or processes share "
    "a budget through the gateway (forebay serve)"
)


class Home:
    """The process and the running loop that a session was opened in."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process where the session was opened."""
        return os.getpid() != self._pid

    @property
    def gone(self) -> bool:
        """Whether the loop has been closed, with whatever was left in it."""
        return self.loop.is_closed()

    def check(self) -> None:
        """See that the caller is at home.

        Raises:
            UsageError: another process, another loop, or no running loop at all.
        """
        if self.forked:
            raise UsageError(f"this session was opened before the process forked: {_WAY_OUT}")
        if _running_loop() is not self.loop:
            raise UsageError(f"this session belongs to another event loop or thread: {_WAY_OUT}")

    def run(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop: at once from inside it, soon from anywhere else."""
        if self.forked:
            return  # the parent does it
        if _running_loop() is self.loop:
            callback()
        else:
            self.run_soon(callback)

    def run_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop, not now; the caller may be the garbage collector."""
        if self.forked or self.gone:
            return
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError:
            if not self.gone:  # closed in the meantime by its own thread
                raise


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
