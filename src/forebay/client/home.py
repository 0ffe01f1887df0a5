"""Where a session lives: one process, and the event loop that keeps its time."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

from forebay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

# Loops of another time than the machine's are for tests: theirs is the only clock then.
_SAME_CLOCK_S = 1.0


class Home:
    """The process and the running loop that a session was opened in.

    Attributes:
        clock: seconds, for every thread; that of the loop.
        closed: whether the session is.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._pid = os.getpid()
        # uvloop's own clock is read from its loop, which other threads must leave alone.
        same = abs(self.loop.time() - time.monotonic()) < _SAME_CLOCK_S
        self.clock: Callable[[], float] = time.monotonic if same else self.loop.time

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process where the session was opened."""
        return os.getpid() != self._pid

    @property
    def gone(self) -> bool:
        """Whether the loop has been closed, with whatever was left in it."""
        return self.loop.is_closed()

    def check(self) -> None:
        """See that the session can be used here.

        Raises:
            UsageError: it is closed, or this is another process.
        """
        if self.forked:
            raise UsageError(
                "this session was opened before the process forked, and both would admit the whole "
                "budget: open one in each child, over endpoints of its own, or let all of them "
                "share a budget through the gateway (forebay serve)"
            )
        if self.closed or self.gone:
            raise UsageError(
                "this session is closed: use it inside its `with` block, or before `close()`"
            )


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs in this thread, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def refuse_to_block(instead: str) -> None:
    """See that this thread may be blocked.

    Raises:
        UsageError: an event loop runs in it, which would stand still meanwhile.
    """
    if running_loop() is not None:
        raise UsageError(f"this would block the event loop that runs in this thread: {instead}")
