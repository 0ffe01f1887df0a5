"""A session for programs without an event loop: one of its own keeps its time, in a thread."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from forebay.client.opening import open as open_async

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.client.session import Session

# What a program that ends without closing its session waits for that, at most.
_EXIT_S = 5.0


def open_sync(config: str | Path | None = None) -> Session:
    """Open a session where no event loop runs: ``with forebay.open_sync("config.json") as fb``.

    It is open at once, and until its block ends, `Session.close` is called, or the program ends.

    Args:
        config: see `open`.

    Raises:
        ConfigError: see `open`.
        UsageError: see `open`.
    """
    keeper = _Keeper(config)
    keeper.start()
    try:
        session = keeper.opened.result()
    except BaseException:  # it could not be opened; or a signal's handler raised, and it still may
        keeper.opened.add_done_callback(lambda _: keeper.leave())
        raise
    session.closes_by(keeper.close)
    atexit.register(keeper.close, _EXIT_S)
    return session


class _Keeper(threading.Thread):
    """Keeps a session open.

    Args:
        config: its configuration.

    Attributes:
        opened: the session, once it is.
    """

    def __init__(self, config: str | Path | None) -> None:
        super().__init__(name="forebay", daemon=True)  # a program's end does not wait for it
        self.opened: Future[Session] = Future()
        self._config = config
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event

    def run(self) -> None:
        try:
            asyncio.run(self._keep())
        except BaseException as error:
            if self.opened.done():
                raise
            self.opened.set_exception(error)

    async def _keep(self) -> None:
        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        async with open_async(self._config) as session:
            self.opened.set_result(session)
            await self._leave.wait()

    def leave(self) -> None:
        """Close the session soon."""
        if self._loop is not None:
            with suppress(RuntimeError):  # closed already
                self._loop.call_soon_threadsafe(self._leave.set)

    def close(self, within_s: float | None = None) -> None:
        """Close the session, and wait until it is; once it is, nothing happens."""
        if os.getpid() != self._pid:
            return  # a forked child ends, and has none of this but a copy
        self.leave()
        self.join(within_s)
        atexit.unregister(self.close)
