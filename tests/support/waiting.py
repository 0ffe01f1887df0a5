"""Waiting for what happens elsewhere: in a server, or in another process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable


async def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Return once the condition holds; fail if it does not in time."""
    with anyio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110 - what a server counts cannot set an event
            await anyio.sleep(0.001)
