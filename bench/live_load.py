"""Clients of a gateway that is changed: streamed chats and batches of texts, and what they get."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    Read = Callable[[aiohttp.ClientResponse], Awaitable[None]]

TOKENS, TEXTS = "chat tokens", "embedded texts"
_CHATS, _BATCHES = 48, 48
_ANSWER_TOKENS = (10, 40)
_BATCH_TEXTS = 4


@dataclass
class Work:
    """What arrived at the clients.

    Attributes:
        arrived: when, what, how much.
        by_endpoint: when each endpoint answered first.
        answers: requests that ended well.
        failed: those that did not, in words.
        over: no more are to be sent.
    """

    arrived: list[tuple[float, str, int]] = field(default_factory=list)
    by_endpoint: dict[str, float] = field(default_factory=dict)
    answers: int = 0
    failed: list[str] = field(default_factory=list)
    over: bool = False

    def note(self, kind: str, amount: int) -> None:
        """Count what has arrived."""
        self.arrived.append((time.monotonic(), kind, amount))

    def per_s(self, kind: str, since: float, until: float) -> float:
        """Work of one kind in some time."""
        done = sum(n for at, what, n in self.arrived if what == kind and since <= at < until)
        return done / (until - since)


class Load:
    """Clients that ask again as soon as they have been answered.

    Args:
        session: sends their requests.
        url: of the gateway.
        work: gets what they see.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, work: Work) -> None:
        self._session = session
        self._url = url
        self._work = work
        self._rng = random.Random(5)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start all of them."""
        for _ in range(_CHATS):
            tasks.create_task(self._repeat("chat/completions", self._chat_body, self._stream))
        for _ in range(_BATCHES):
            tasks.create_task(self._repeat("embeddings", self._batch_body, self._vectors))

    async def _repeat(self, path: str, body: Callable[[], dict[str, Any]], read: Read) -> None:
        work = self._work
        while not work.over:
            try:
                async with self._session.post(f"{self._url}/{path}", json=body()) as response:
                    await read(response)
                    # A stream that waited for long got its headers before it had an endpoint.
                    endpoint = response.headers.get("x-forebay-endpoint", "")
                    work.by_endpoint.setdefault(endpoint, time.monotonic())
                    work.answers += 1
            except (aiohttp.ClientError, TimeoutError, ValueError, LookupError) as error:
                work.failed.append(f"{path}: {error!r}")

    def _chat_body(self) -> dict[str, Any]:
        question = f"{self._rng.randrange(10**9)} tell me"
        return {
            "model": "chat",
            "messages": [{"role": "user", "content": question}],
            "max_tokens": self._rng.randint(*_ANSWER_TOKENS),
            "ignore_eos": True,
            "stream": True,
        }

    def _batch_body(self) -> dict[str, Any]:
        texts = [f"{self._rng.randrange(10**9)} " + "word " * 60 for _ in range(_BATCH_TEXTS)]
        return {"model": "embedding", "input": texts, "encoding_format": "base64"}

    async def _stream(self, response: aiohttp.ClientResponse) -> None:
        response.raise_for_status()
        line = b""
        async for line in response.content:
            if b'"error"' in line:
                raise ValueError(line)
            if b'"content"' in line:
                self._work.note(TOKENS, 1)
            if line.startswith(b"data: [DONE]"):
                return
        raise ValueError(f"the stream ends with {line!r}")

    async def _vectors(self, response: aiohttp.ClientResponse) -> None:
        response.raise_for_status()
        answer = await response.json()
        if len(answer["data"]) != _BATCH_TEXTS:
            raise ValueError(f"{len(answer['data'])} vectors of {_BATCH_TEXTS}")
        self._work.note(TEXTS, _BATCH_TEXTS)
