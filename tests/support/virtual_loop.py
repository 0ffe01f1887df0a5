"""An asyncio event loop on which hours pass at once: it never sleeps, it moves its clock."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

# What looks at something now and then would otherwise go on for ever.
_MOST_SKIPS = 200_000


class _Skipping(selectors.DefaultSelector):
    """Skips the time that it was asked to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._skips = 0

    def select(self, timeout: float | None = None) -> list:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("nothing will ever happen on this loop: whoever waits hangs")
        if not ready and timeout:
            self.now += timeout
            self._skips += 1
            if self._skips > _MOST_SKIPS:
                raise RuntimeError(f"{self.now:g} s have passed on this loop: whoever waits hangs")
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at 0; time passes only while every task waits. What is for a thread takes none."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def run_in_executor(self, executor, func, *args) -> asyncio.Future:
        del executor
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)
        return done

    def time(self) -> float:
        return self._skipping.now

    def be_late(self, now: float) -> None:
        """Move the clock as if something had kept the loop busy until `now`."""
        self._skipping.now = now


def on_virtual_time(main: Coroutine[Any, Any, Any]) -> Any:
    """Run it on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
