"""Following a source of endpoints."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from forebay.adapters.discovery import Source


class Told:
    """What a source has told so far."""

    def __init__(self) -> None:
        self.sets: list[frozenset[str]] = []

    @property
    def last(self) -> frozenset[str] | None:
        return self.sets[-1] if self.sets else None

    async def becomes(self, *urls: str, within_s: float = 5.0) -> None:
        await eventually(lambda: self.last == frozenset(urls), within_s)


@asynccontextmanager
async def watching(source: Source) -> AsyncIterator[Told]:
    told = Told()
    task = asyncio.create_task(source.run(told.sets.append))
    try:
        yield told
        assert not task.done(), task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
