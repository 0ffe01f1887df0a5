"""Callers that know nothing of failover: each asks again as soon as it has its answer.

A process of its own, through the gateway or with the library. It runs until it is told to stop
(SIGTERM), and prints every call as JSON: caller, when it began and ended, and what went wrong.
Times are the machine's monotonic clock.

    python -m bench.failover_callers gateway http://127.0.0.1:8080/v1
    python -m bench.failover_callers library config.json
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

import forebay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    # Asks once; the argument makes the request differ from all others.
    Ask = Callable[[int], Awaitable[None]]

_EMBEDDERS, _CHATTERS = 32, 4
_TEXTS = 4
_CHAT_PAUSE_S = 0.1
# What the program with the library gives its HTTP client; the gateway has its own.
CONNECT_S, READ_S = 0.4, 0.75


async def _post(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> dict[str, Any]:
    async with session.post(url, json=body, raise_for_status=True) as response:
        answer: dict[str, Any] = await response.json()
        return answer


async def _embed(session: aiohttp.ClientSession, base_url: str, model: str, number: int) -> None:
    texts = [f"{number} {n} " + "word " * 20 for n in range(_TEXTS)]
    body = {"model": model, "input": texts, "encoding_format": "base64"}
    answer = await _post(session, f"{base_url}/embeddings", body)
    if [row["index"] for row in answer["data"]] != list(range(_TEXTS)):
        raise ValueError(f"{len(answer['data'])} vectors for {_TEXTS} texts")


async def _chat(session: aiohttp.ClientSession, base_url: str, model: str, number: int) -> None:
    messages = [{"role": "user", "content": f"{number} tell me"}]
    body = {"model": model, "messages": messages, "max_tokens": 16}
    await _post(session, f"{base_url}/chat/completions", body)


@asynccontextmanager
async def through_gateway(base_url: str) -> AsyncIterator[tuple[Ask, Ask]]:
    """Ways to embed and to chat through the gateway."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield (
            lambda number: _embed(session, base_url, "embedding", number),
            lambda number: _chat(session, base_url, "chat", number),
        )


@asynccontextmanager
async def with_library(config: Path) -> AsyncIterator[tuple[Ask, Ask]]:
    """Ways to embed and to chat with the library, at the endpoint that it names."""
    connector = aiohttp.TCPConnector(limit=0)
    times = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=times) as session,
        forebay.open(config) as fb,
    ):

        async def embed(number: int) -> None:
            lease = fb.current_lease()
            await _embed(session, lease.endpoint.base_url, lease.model, number)

        async def job(number: int) -> None:
            await fb.map_concurrent(embed, [number], model="embedding")

        async def chat(number: int) -> None:
            async with fb.slot("chat") as lease:
                await _chat(session, lease.endpoint.base_url, lease.model, number)

        yield job, chat


class Callers:
    """Who calls, and what became of it."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self._numbers = itertools.count()
        self._stop = asyncio.Event()

    async def run(self, embed: Ask, chat: Ask) -> None:
        """Call until SIGTERM; what is under way then is waited for."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop.set)
        print("calling", flush=True)
        async with asyncio.TaskGroup() as group:
            for n in range(_EMBEDDERS):
                group.create_task(self._caller(f"embed-{n}", embed, 0.0))
            for n in range(_CHATTERS):
                group.create_task(self._caller(f"chat-{n}", chat, _CHAT_PAUSE_S))

    async def _caller(self, name: str, ask: Ask, pause_s: float) -> None:
        while not self._stop.is_set():
            began, error = time.monotonic(), None
            try:
                await ask(next(self._numbers))
            except (aiohttp.ClientError, forebay.ForebayError, TimeoutError, ValueError) as caught:
                error = repr(caught)
                await asyncio.sleep(0.1)
            call = {"caller": name, "began": began, "ended": time.monotonic(), "error": error}
            self.calls.append(call)
            await asyncio.sleep(pause_s)


async def _run(way: str, where: str) -> None:
    made = through_gateway(where) if way == "gateway" else with_library(Path(where))
    callers = Callers()
    async with made as (embed, chat):
        await callers.run(embed, chat)
    print(json.dumps(callers.calls))


def main() -> None:
    """Read the command line and call."""
    parser = argparse.ArgumentParser(description="Callers of the failover benchmark.")
    parser.add_argument("way", choices=("gateway", "library"))
    parser.add_argument("where", help="the gateway's base URL, or the library's configuration")
    arguments = parser.parse_args()
    asyncio.run(_run(arguments.way, arguments.where))


if __name__ == "__main__":
    main()
