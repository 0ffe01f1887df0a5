"""What an exception says about the endpoint that was asked.

The library sees no request, only how the block around it ended. It knows the errors of the usual
HTTP clients by what they carry (a status) or by name, so that none of them has to be installed.
"""

from __future__ import annotations

import errno
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from forebay.adapters.engines.retry_after import DEFAULT_CAP_S, retry_after_s
from forebay.adapters.engines.status import classify_error, stream_error
from forebay.adapters.exhaustion import OWN_ERRNOS
from forebay.core.model import Ending, Outcome
from forebay.errors import UpstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from forebay.adapters.engines.base import Engine

# httpx, and httpx2, which newer OpenAI clients are built on.
_HTTPX = {
    "PoolTimeout": Outcome.CLIENT_ERROR,  # this side has no connection left
    "LocalProtocolError": Outcome.CLIENT_ERROR,
    "UnsupportedProtocol": Outcome.CLIENT_ERROR,
    "TimeoutException": Outcome.TIMEOUT,
    "TransportError": Outcome.FAILURE,
}
# Errors by the package and the class that they, or one of their bases, come from.
_BY_NAME = {
    ("aiohttp", "ServerTimeoutError"): Outcome.TIMEOUT,
    ("aiohttp", "ClientConnectionError"): Outcome.FAILURE,
    ("aiohttp", "ClientPayloadError"): Outcome.FAILURE,
    ("asyncio", "IncompleteReadError"): Outcome.FAILURE,
    **{("httpx", name): outcome for name, outcome in _HTTPX.items()},
    **{("httpx2", name): outcome for name, outcome in _HTTPX.items()},
    ("requests", "Timeout"): Outcome.TIMEOUT,
    ("requests", "InvalidURL"): Outcome.CLIENT_ERROR,
    ("requests", "MissingSchema"): Outcome.CLIENT_ERROR,
    ("requests", "InvalidSchema"): Outcome.CLIENT_ERROR,
    ("urllib3", "TimeoutError"): Outcome.TIMEOUT,
    ("urllib3", "PoolError"): Outcome.FAILURE,
    ("urllib3", "EmptyPoolError"): Outcome.CLIENT_ERROR,
}
# Files, processes and used up descriptors are the caller's own.
_OWN_ERRORS = (
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    ChildProcessError,
    ProcessLookupError,
)
_OWN_ERRNOS = OWN_ERRNOS | {errno.ENOSPC}

_STATUSES = range(100, 600)
_TEXT_LENGTH = 4096
_MOST_RELATED = 16


def ending_of(
    error: BaseException, engine: Engine, *, longest_rest_s: float = DEFAULT_CAP_S
) -> Ending:
    """The ending of a block that was left by `error`.

    Causes and members of exception groups count too; the first that says anything decides. What
    says nothing is the caller's own fault, and no endpoint's.

    Args:
        error: what left the block.
        engine: the server that was asked, which knows its own statuses.
        longest_rest_s: no wish to be left alone is kept for longer.
    """
    for one in _related(error):
        ending = _of_response(one, engine, longest_rest_s)
        if ending is not None:
            return ending
        outcome = _of_kind(one)
        if outcome is not None:
            return Ending(outcome)
    return Ending(Outcome.CLIENT_ERROR)


def _related(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and what it groups; causes can form a ring."""
    todo = [error]
    for _ in range(_MOST_RELATED):
        if not todo:
            return
        one = todo.pop(0)
        yield one
        if isinstance(one, BaseExceptionGroup):
            todo.extend(one.exceptions)
        if one.__cause__ is not None:
            todo.append(one.__cause__)


def _of_response(error: BaseException, engine: Engine, longest_rest_s: float) -> Ending | None:
    """The ending that an error with an HTTP status stands for."""
    response = getattr(error, "response", None)
    status = _status(error) or _status(response)
    if status is None:
        return None
    headers = _headers(error) or _headers(response)
    outcome = engine.classify(status, headers, _body(response) or _text(error))
    if outcome is Outcome.OK:  # the answer was good, and the caller could not use it
        outcome = Outcome.CLIENT_ERROR
    rest_s = retry_after_s(headers, now=datetime.now(UTC), cap_s=longest_rest_s)
    return Ending(outcome, retry_after_s=rest_s)


def _body(response: object) -> bytes:
    """The body of a response that has been read: httpx's, which most clients are built on."""
    if not getattr(response, "is_stream_consumed", False):
        return b""
    try:
        body = getattr(response, "content", None)
    except RuntimeError:  # it was read in pieces, and nobody kept them
        return b""
    return body[:_TEXT_LENGTH] if isinstance(body, bytes) else b""


def _text(error: BaseException) -> bytes:
    return str(error)[:_TEXT_LENGTH].encode(errors="replace")


def _status(source: object) -> int | None:
    for name in ("status_code", "status"):
        status = getattr(source, name, None)
        if isinstance(status, int) and status in _STATUSES:
            return status
    return None


def _headers(source: object) -> Mapping[str, str]:
    headers = getattr(source, "headers", None)
    items = getattr(headers, "items", None)
    return {str(k): str(v) for k, v in items()} if callable(items) else {}


def _of_kind(error: BaseException) -> Outcome | None:
    if isinstance(error, BaseExceptionGroup):
        return None
    if not isinstance(error, Exception):  # cancelled, closed, interrupted
        return Outcome.CANCELLED
    if isinstance(error, _OWN_ERRORS) or getattr(error, "errno", None) in _OWN_ERRNOS:
        return Outcome.CLIENT_ERROR
    for kind in type(error).__mro__:
        name = (kind.__module__.partition(".")[0], kind.__name__)
        outcome = _BY_NAME.get(name)
        if outcome is None and name == ("openai", "APIError"):
            outcome = _of_event(getattr(error, "body", None))
        if outcome is not None:
            return outcome
    if isinstance(error, OSError | UpstreamError):  # time-outs are OSErrors
        return classify_error(error)
    return None


def _of_event(body: object) -> Outcome | None:
    """The outcome of an error event inside a 200, which OpenAI's client keeps as `body`."""
    if not body or not isinstance(body, dict | str):
        return None
    return stream_error(json.dumps({"error": body}, default=str).encode())
