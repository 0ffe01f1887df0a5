"""Waiting for what happens elsewhere: in a server, or in another process."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


Seen = TypeVar("Seen")


async def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Return once the condition holds; fail if it does not in time."""
    with anyio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110 - what a server counts cannot set an event
            await anyio.sleep(0.001)


async def seen(
    look: Callable[[], Awaitable[Seen]], good: Callable[[Seen], bool], within_s: float = 5.0
) -> Seen:
    """Look again and again, and return what is seen once it is good; fail if it is not in time."""
    with anyio.fail_after(within_s):
        while not good(found := await look()):  # noqa: ASYNC110 - it is seen in another process
            await anyio.sleep(0.005)
    return found
