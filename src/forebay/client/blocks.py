"""Many texts, in requests of a few, to the data plane of the session.

Theory of operation. Texts are taken in *blocks*, and a block is one request to ``/v1/embeddings``.
What the gateway does for such a request is done for it here: it is cut into what each endpoint
takes, waits for slots, goes elsewhere, is bisected. So this module only keeps enough requests under
way that every slot of the model can be used, and waits where they are told to come back later.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.client.embedding_request import ask, comes_later, named, wrong_with
from forebay.client.fan_out import FanOut, Job, each_of, items_error
from forebay.client.progress import Tally, tally
from forebay.client.streams import Results
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Iterable

    from forebay.client.embedding_request import Texts
    from forebay.client.http.inside import Inside
    from forebay.client.progress import Shown
    from forebay.proxy.deployment import Deployment

# What a block has at most: so much that a request costs little for each text, and so little that
# there are some for every slot.
_TEXTS, _CHARACTERS = 64, 200_000
_MOST_BYTES_A_CHARACTER = 6  # a control character in JSON
_MOST_AT_ONCE = 64


class _Permit:
    """One of the requests that may be under way."""

    def __init__(self, permits: asyncio.Semaphore) -> None:
        self._permits: asyncio.Semaphore | None = permits

    def give_back(self) -> None:
        """See `Held`."""
        if self._permits is not None:
            self._permits.release()
            self._permits = None


class Blocks:
    """One job.

    Args:
        deployment: the endpoints and their admission.
        inside: serves the requests.
        wanted: what is asked for.
    """

    def __init__(self, deployment: Deployment, inside: Inside, wanted: Texts) -> None:
        self._deployment = deployment
        self._inside = inside
        self._wanted = wanted

    async def run(self, texts: Iterable[str] | AsyncIterable[str], progress: Shown) -> list[Any]:
        """A row for each text, or an error."""
        if isinstance(texts, str):
            raise TypeError("texts is one str; give a list of them, even if it is of one")
        permits = asyncio.Semaphore(self._width())

        async def permit(size: float | None) -> _Permit:
            del size
            await permits.acquire()
            return _Permit(permits)

        results = Results()
        with tally(progress, texts, self._wanted.model) as counted:
            call = partial(self._embed, counted)
            job = Job(call, permit, _nowhere, lambda _: None, None, collect=False)
            await FanOut(job, results, Tally(None, None)).run(self._in_blocks(texts))
        return [row for rows in results.all for row in rows]

    def _width(self) -> int:
        """Requests that are enough for every slot."""
        endpoints = [planned.endpoint for planned in self._deployment.plan.endpoints]
        ceilings = [
            e.ceiling for e in endpoints if any(m == self._wanted.model for m, _ in e.serves)
        ]
        return max(1, min(sum(ceilings), _MOST_AT_ONCE))

    async def _in_blocks(
        self, texts: Iterable[str] | AsyncIterable[str]
    ) -> AsyncGenerator[tuple[int, list[str]], None]:
        block: list[str] = []
        start = size = count = 0
        limit = self._deployment.settings.body_limit_bytes // _MOST_BYTES_A_CHARACTER
        most = min(_CHARACTERS, limit)
        try:
            async for text in each_of(texts):
                count += 1
                length = len(text) if isinstance(text, str) else 0
                if block and (len(block) == _TEXTS or size + length > most):
                    yield start, block
                    start, block, size = start + len(block), [], 0
                block.append(str(text) if isinstance(text, str) else text)  # of a subclass
                size += length
        except Exception as error:
            raise items_error(error, count) from error
        if block:
            yield start, block

    async def _embed(
        self, counted: Tally, permit: _Permit, size: None, block: tuple[int, list[str]]
    ) -> list[Any]:
        del size
        start, texts = block
        try:
            rows = await self._rows(start, texts)
        finally:
            permit.give_back()
        for row in rows:
            failed = isinstance(row, ForebayError)
            if failed and not self._wanted.collect:
                raise row
            counted.count(failed=failed)
        return rows

    async def _rows(self, start: int, texts: list[str]) -> list[Any]:
        """A vector for each text of a block, or an error."""
        rows: list[Any] = [wrong_with(start + n, text) for n, text in enumerate(texts)]
        pending = [n for n, wrong in enumerate(rows) if wrong is None]
        clock, timeout_s = asyncio.get_running_loop().time, self._wanted.timeout_s
        until = clock() + (timeout_s or self._deployment.settings.timeouts.request_s)
        tries = 0
        while pending and not self._over(rows, pending):
            tries += 1
            request = self._wanted.request([texts[n] for n in pending], until - clock())
            found = await ask(self._inside, request, len(pending))
            later = []
            for n, each in zip(pending, found.rows, strict=True):
                rows[n] = named(each, start + n) if isinstance(each, ForebayError) else each
                if comes_later(each, tries):
                    later.append(n)
            pending = later if clock() + found.pause_s < until else []
            if pending:
                await asyncio.sleep(found.pause_s)
        return rows

    def _over(self, rows: list[Any], pending: list[int]) -> bool:
        """Whether an error that stays ends it all."""
        errors = {n for n, row in enumerate(rows) if isinstance(row, ForebayError)}
        return not self._wanted.collect and bool(errors - set(pending))


async def _nowhere(permit: object) -> None:
    """The data plane has tried elsewhere."""
