"""The three requests of the demonstration, as a well-behaved client sends them.

A refusal (429) is tried again after the time that it names, within one time limit for everything.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp

from forebay.errors import ForebayError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_REQUEST_TIMEOUT_S = 120.0
_DEFAULT_RETRY_AFTER_S = 1.0


class RequestFailed(ForebayError):  # noqa: N818 - names what happened, as the others do
    """A request got no useful answer; the message has the URL and what came instead."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the two models are, for one way of reaching them.

    Args:
        chat_url: base URL of the chat model's API, e.g. ``http://127.0.0.1:8080/v1``.
        embedding_url: base URL of the embedding model's API.
        chat_model: id of the chat model.
        embedding_model: id of the embedding model.
    """

    chat_url: str
    embedding_url: str
    chat_model: str
    embedding_model: str


@dataclass(frozen=True, slots=True)
class Answer:
    """How long one streamed answer took, from the moment of asking, refusals included.

    Args:
        first_token_s: until the first token.
        output_token_s: mean time of each token after the first.
        total_s: until the end.
    """

    first_token_s: float
    output_token_s: float
    total_s: float


class Client:
    """Asks the models of one target.

    Args:
        session: sends the requests.
        target: where the models are.

    Attributes:
        refused: how many times it was told to come back later (429).
    """

    def __init__(self, session: aiohttp.ClientSession, target: Target) -> None:
        self._session = session
        self._target = target
        self.refused = 0

    async def chat(self, prompt: str, tokens: int) -> Answer:
        """Stream an answer of `tokens` tokens.

        Raises:
            RequestFailed: no such answer came.
        """
        body = self._chat_body(prompt, tokens) | {
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        asked_at = time.monotonic()
        first_at = last_at = None
        received = 0
        async with self._post(f"{self._target.chat_url}/chat/completions", body) as response:
            async for event in _events(response):
                if any(choice["delta"].get("content") for choice in event["choices"]):
                    last_at = time.monotonic()
                    first_at = first_at or last_at
                if usage := event.get("usage"):
                    received = usage["completion_tokens"]
            ended_at = time.monotonic()
        if first_at is None or last_at is None or received == 0:
            raise RequestFailed(f"{self._target.chat_url}: the stream ended without an answer")
        return Answer(
            first_token_s=first_at - asked_at,
            output_token_s=(last_at - first_at) / max(1, received - 1),
            total_s=ended_at - asked_at,
        )

    async def generate(self, prompt: str, tokens: int, service_tier: str | None) -> int:
        """Generate in one piece; returns the number of tokens that came.

        Raises:
            RequestFailed: no such answer came.
        """
        body = self._chat_body(prompt, tokens)
        if service_tier is not None:
            body["service_tier"] = service_tier
        async with self._post(f"{self._target.chat_url}/chat/completions", body) as response:
            answer = await response.json()
            return int(answer["usage"]["completion_tokens"])

    async def embed(self, texts: list[str]) -> int:
        """Embed texts; returns how many.

        Raises:
            RequestFailed: no such answer came.
        """
        body = {
            "model": self._target.embedding_model,
            "input": texts,
            "encoding_format": "base64",  # a fifth of the bytes that the same floats take as text
        }
        async with self._post(f"{self._target.embedding_url}/embeddings", body) as response:
            answer = await response.json()
            return len(answer["data"])

    def _chat_body(self, prompt: str, tokens: int) -> dict[str, Any]:
        return {
            "model": self._target.chat_model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
        }

    @asynccontextmanager
    async def _post(self, url: str, body: dict[str, Any]) -> AsyncIterator[aiohttp.ClientResponse]:
        """The first answer to `body` that is not a refusal."""
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                while True:
                    async with self._session.post(url, json=body) as response:
                        if response.status != HTTPStatus.TOO_MANY_REQUESTS:
                            await _check_status(response)
                            yield response
                            return
                        self.refused += 1
                    await asyncio.sleep(_retry_after_s(response))
        except (aiohttp.ClientError, TimeoutError, ValueError, LookupError) as error:
            raise RequestFailed(f"{url}: {error!r}") from error


async def _check_status(response: aiohttp.ClientResponse) -> None:
    if response.status != HTTPStatus.OK:
        start = (await response.text())[:200]
        raise RequestFailed(f"{response.url} answered {response.status}: {start}")


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The JSON of a stream of server-sent events, up to the closing ``[DONE]``."""
    async for line in response.content:
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        if line.startswith(b"data:"):
            yield json.loads(data)
    raise ValueError("the stream was cut short")


def _retry_after_s(response: aiohttp.ClientResponse) -> float:
    seconds = response.headers.get("Retry-After", "")
    return float(seconds) if seconds.isdecimal() else _DEFAULT_RETRY_AFTER_S
