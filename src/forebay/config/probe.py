"""Ask each endpoint of a plan whether it is what the configuration says, and works.

First for its models, which tells most about what is wrong; then the smallest request of its kind.
Health pages are not asked: some say 200 long after the GPU has failed (Infinity's tells the time).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from forebay.adapters.engines import registry
from forebay.adapters.engines.unknown import Unknown
from forebay.config.api_root import DEFAULT_API_PREFIX
from forebay.core.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.config.fields import Kind
    from forebay.config.plan import Plan, PlannedEndpoint

_OK, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _UNAVAILABLE = 200, 401, 403, 404, 503
_LISTED_MODELS = 5
_SMALLEST_REQUEST: Mapping[Kind, tuple[str, Mapping[str, object]]] = {
    "chat": (
        "/chat/completions",
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    ),
    "embedding": ("/embeddings", {"input": "Hi"}),
    "rerank": ("/rerank", {"query": "Hi", "documents": ["Hi"]}),
}


@dataclass(frozen=True, slots=True)
class Probe:
    """What one endpoint answered.

    Args:
        endpoint: its id.
        ok: it is there and works, and nothing contradicts the configuration.
        message: what a person should read.
    """

    endpoint: str
    ok: bool
    message: str


async def probe(
    plan: Plan, *, timeout_s: float = 5.0, request_timeout_s: float = 60.0
) -> list[Probe]:
    """Ask all endpoints at once.

    Args:
        plan: whose endpoints.
        timeout_s: time for a list of models, connecting included.
        request_timeout_s: time for the smallest request; some engines load the model for it.
    """
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        return await asyncio.gather(
            *(_Prober(session, planned, request_timeout_s).probe() for planned in plan.endpoints)
        )


class _Prober:
    """Asks one endpoint."""

    def __init__(
        self, session: aiohttp.ClientSession, planned: PlannedEndpoint, request_timeout_s: float
    ) -> None:
        self._session = session
        self._planned = planned
        self._request_timeout_s = request_timeout_s

    async def probe(self) -> Probe:
        try:
            return await self._judge()
        except TimeoutError:
            return self._wrong("no answer in time")
        except aiohttp.ClientError as error:
            return self._wrong(f"not reachable ({_cause(error)})")

    async def _judge(self) -> Probe:
        planned = self._planned
        status, body = await self._ask("GET", planned.url.at("/models"))
        if status == _OK:
            wrong = self._wrong_models(body)
            return self._wrong(wrong) if wrong else await self._judge_work()
        if status == _NOT_FOUND:
            return await self._look_elsewhere()
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            key = "its api_key" if planned.api_key else "a request without api_key"
            return self._wrong(f"answers, but refuses {key} ({status})")
        if status == _UNAVAILABLE:
            return self._wrong("answers 503: it starts, or is overloaded")
        return self._wrong(f"answers {status} to {planned.url.api}/models")

    def _wrong_models(self, body: bytes) -> str | None:
        """What is wrong with its list of models."""
        model = self._planned.endpoint.model
        try:
            served = [str(item["id"]) for item in json.loads(body)["data"]]
        except (ValueError, KeyError, TypeError):
            return "answers, but not with a list of models"
        if model in served or f"{model}:latest" in served:  # the latter is Ollama's
            return None
        listed = ", ".join(served[:_LISTED_MODELS]) or "none"
        return f"does not serve {model!r}; it serves: {listed}"

    async def _look_elsewhere(self) -> Probe:
        url = self._planned.url
        other_prefix = "" if url.api_prefix else DEFAULT_API_PREFIX
        other = f"{url.root}{other_prefix}/models"
        status, _ = await self._ask("GET", other)
        if status == _OK:
            hint = f'set "api_prefix": "{other_prefix}"'
            return self._wrong(f"404 at {url.api}/models, but is at {other}: {hint}")
        # Some engines do not list models: that it works has to do.
        _, outcome = await self._smallest_request()
        if outcome in {Outcome.OK, Outcome.CONGESTION}:
            return self._right("works; does not list its models")
        return self._wrong(f"404 at {url.api}/models and at {other}: is base_url right?")

    async def _judge_work(self) -> Probe:
        path, _ = _SMALLEST_REQUEST[self._planned.kind]
        try:
            status, outcome = await self._smallest_request()
        except TimeoutError:
            within = f"within {self._request_timeout_s:g} s"
            return self._wrong(f"lists the model, but did not answer {path} {within}")
        if outcome is Outcome.OK:
            return self._right("serves the model")
        if outcome is Outcome.CONGESTION:
            return self._right("serves the model; is busy now")
        if outcome is Outcome.CLIENT_ERROR:  # it works, and is particular about what it takes
            return self._right(f"serves the model; answers {status} to a small {path}")
        return self._wrong(f"lists the model, but answers {status} to a small {path}: {outcome}")

    async def _smallest_request(self) -> tuple[int, Outcome]:
        planned = self._planned
        engine = registry.engine(planned.engine) if planned.engine else Unknown()
        path, request = _SMALLEST_REQUEST[planned.kind]
        body = {"model": planned.endpoint.model, **request}
        async with asyncio.timeout(self._request_timeout_s):
            status, answer = await self._ask("POST", planned.url.at(path), body)
        return status, engine.classify(status, {}, answer)

    async def _ask(
        self, method: str, url: str, body: Mapping[str, object] | None = None
    ) -> tuple[int, bytes]:
        headers = {}
        if self._planned.api_key is not None:
            headers["Authorization"] = f"Bearer {self._planned.api_key.get_secret_value()}"
        timeout = self._session.timeout if body is None else aiohttp.ClientTimeout(total=None)
        # A redirect is not followed: it could carry the key elsewhere.
        async with self._session.request(
            method, url, headers=headers, json=body, allow_redirects=False, timeout=timeout
        ) as response:
            return response.status, await response.read()

    def _right(self, message: str) -> Probe:
        return Probe(self._planned.endpoint.id, ok=True, message=message)

    def _wrong(self, message: str) -> Probe:
        return Probe(self._planned.endpoint.id, ok=False, message=message)


def _cause(error: aiohttp.ClientError) -> str:
    # aiohttp's own text repeats the whole URL, and with it the query.
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return getattr(cause, "strerror", None) or type(cause).__name__
