"""Ask each endpoint of a plan whether it is what the configuration says. One GET or three each."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from forebay.config.api_root import DEFAULT_API_PREFIX

if TYPE_CHECKING:
    from forebay.config.plan import Plan, PlannedEndpoint

_OK, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _UNAVAILABLE = 200, 401, 403, 404, 503
_LISTED_MODELS = 5


@dataclass(frozen=True, slots=True)
class Probe:
    """What one endpoint answered.

    Args:
        endpoint: its id.
        ok: it is there, and nothing contradicts the configuration.
        message: what a person should read.
    """

    endpoint: str
    ok: bool
    message: str


async def probe(plan: Plan, *, timeout_s: float = 5.0) -> list[Probe]:
    """Ask all endpoints at once, each for its models.

    Args:
        plan: whose endpoints.
        timeout_s: time for one answer, connecting included.
    """
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        return await asyncio.gather(*(_probe(session, planned) for planned in plan.endpoints))


async def _probe(session: aiohttp.ClientSession, planned: PlannedEndpoint) -> Probe:
    name = planned.endpoint.id
    try:
        return await _judge(session, planned)
    except TimeoutError:
        return Probe(name, ok=False, message="no answer in time")
    except aiohttp.ClientError as error:
        return Probe(name, ok=False, message=f"not reachable ({_cause(error)})")


async def _judge(session: aiohttp.ClientSession, planned: PlannedEndpoint) -> Probe:
    status, body = await _get(session, planned.url.at("/models"), planned)
    if status == _OK:
        return _judge_models(planned, body)
    if status == _NOT_FOUND:
        return await _look_elsewhere(session, planned)
    if status in {_UNAUTHORIZED, _FORBIDDEN}:
        key = "its api_key" if planned.api_key else "a request without api_key"
        message = f"answers, but refuses {key} ({status})"
    elif status == _UNAVAILABLE:
        message = "answers 503: it starts, or is overloaded"
    else:
        message = f"answers {status} to {planned.url.api}/models"
    return Probe(planned.endpoint.id, ok=False, message=message)


async def _look_elsewhere(session: aiohttp.ClientSession, planned: PlannedEndpoint) -> Probe:
    name, url = planned.endpoint.id, planned.url
    other_prefix = "" if url.api_prefix else DEFAULT_API_PREFIX
    other = f"{url.root}{other_prefix}/models"
    status, _ = await _get(session, other, planned)
    if status == _OK:
        hint = f'set "api_prefix": "{other_prefix}"'
        return Probe(name, ok=False, message=f"404 at {url.api}/models, but is at {other}: {hint}")
    # Some engines do not list models: that they are healthy has to do.
    status, _ = await _get(session, f"{url.root}/health", planned)
    if status == _OK:
        return Probe(name, ok=True, message="healthy; does not list its models")
    message = f"404 at {url.api}/models and at {other}: is base_url right?"
    return Probe(name, ok=False, message=message)


def _judge_models(planned: PlannedEndpoint, body: bytes) -> Probe:
    name, model = planned.endpoint.id, planned.endpoint.model
    try:
        served = [str(item["id"]) for item in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError):
        return Probe(name, ok=False, message="answers, but not with a list of models")
    if model not in served:
        listed = ", ".join(served[:_LISTED_MODELS]) or "none"
        return Probe(name, ok=False, message=f"does not serve {model!r}; it serves: {listed}")
    return Probe(name, ok=True, message="serves the model")


async def _get(
    session: aiohttp.ClientSession, url: str, planned: PlannedEndpoint
) -> tuple[int, bytes]:
    headers = {}
    if planned.api_key is not None:
        headers["Authorization"] = f"Bearer {planned.api_key.get_secret_value()}"
    # A redirect is not followed: it could carry the key elsewhere.
    async with session.get(url, headers=headers, allow_redirects=False) as response:
        return response.status, await response.read()


def _cause(error: aiohttp.ClientError) -> str:
    # aiohttp's own text repeats the whole URL, and with it the query.
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return getattr(cause, "strerror", None) or type(cause).__name__
