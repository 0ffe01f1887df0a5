"""An asyncio event loop on which hours pass at once: it never sleeps, it moves its clock."""

from __future__ import annotations

import asyncio
import selectors


class _Skipping(selectors.DefaultSelector):
    """Skips the time that it was asked to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("nothing will ever happen on this loop: whoever waits hangs")
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at 0; time passes only while every task waits."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now

    def be_late(self, now: float) -> None:
        """Move the clock as if something had kept the loop busy until `now`."""
        self._skipping.now = now
