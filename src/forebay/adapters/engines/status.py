"""What an answer, or the lack of one, says about an endpoint.

The distinctions that matter: *congestion* (alive, sheds load) lowers a limit and leaves the breaker
alone; *failure* counts against the endpoint; *client error* says nothing about it, however many
there are; *configuration* needs an operator; *loading* passes by itself.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from http import HTTPStatus
from typing import TYPE_CHECKING

from forebay.adapters.engines.reply import as_dict, header, parse_json
from forebay.core.model import Outcome
from forebay.errors import UpstreamTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOOK_BYTES = 4096  # error texts are short; nobody's megabytes are searched

_BY_STATUS = {
    401: Outcome.CONFIGURATION,  # wrong key
    402: Outcome.CONFIGURATION,
    403: Outcome.CONFIGURATION,
    404: Outcome.CONFIGURATION,  # wrong path, or a model that is not served here
    405: Outcome.CONFIGURATION,
    407: Outcome.CONFIGURATION,
    408: Outcome.FAILURE,
    424: Outcome.FAILURE,  # TEI and TGI: the model's backend failed (CUDA out of memory)
    429: Outcome.CONGESTION,
    501: Outcome.CONFIGURATION,  # started without this feature
    504: Outcome.TIMEOUT,
    524: Outcome.TIMEOUT,  # Cloudflare's
    529: Outcome.CONGESTION,  # "overloaded" at several providers
}
_SUCCESS = 2
_BY_HUNDRED = {
    3: Outcome.CONFIGURATION,  # an API does not redirect: wrong scheme, or a login page
    4: Outcome.CLIENT_ERROR,
}

_LOADING = re.compile(
    rb"(?<!error )(?<!failed )loading model|model (?:\S+ )?is (?:currently |still )?loading"
    rb"|still loading|warming up|model is currently scaling|engine is sleeping",
    re.IGNORECASE,
)
_OVERLOADED = re.compile(
    rb"overload|\bbusy\b|queue (?:is )?full|queue ?overflow|too many (?:concurrent )?requests"
    rb"|maximum pending|max[_-]num[_-]queued|no slots? available|rate.?limit|at capacity"
    rb"|reset reason: overflow|aborted by a higher priority|waiting time-?out reached"
    rb"|exceeds maximum queue size|request timeout expired",
    re.IGNORECASE,
)
# Said with 500 by llama.cpp and Ollama, and with 503 by SGLang, although only this one request is
# wrong: it is too large, for another kind of model, or has a priority where there are none.
_REQUEST_AT_FAULT = re.compile(
    rb"too large to process|exceeds? the (?:available |maximum )?context"
    rb"|context size has been exceeded|input length exceeds"
    rb"|does not support (?:logits|embeddings|chat|completion|generate)|using priority is disabled",
    re.IGNORECASE,
)
# Said with 400 by Infinity, Triton and llama.cpp's router, where others say 404.
_NO_SUCH_MODEL = re.compile(
    rb"(?:invalid|unknown) model\b|\bmodel (?:\S{1,200} )?(?:is |was )?not found"
    rb"|\bmodel \S{1,200} does not exist",
    re.IGNORECASE,
)
_MAY_BE_THE_REQUESTS_FAULT = frozenset({500, 503})
_BY_TEXT = (
    (_LOADING, Outcome.LOADING),
    (_OVERLOADED, Outcome.CONGESTION),
    (re.compile(rb"time[sd]?[ _-]?out", re.IGNORECASE), Outcome.TIMEOUT),
    (
        re.compile(rb"authentic|authori[sz]|permission|api.?key|not.?found", re.IGNORECASE),
        Outcome.CONFIGURATION,
    ),
    (re.compile(rb"invalid|bad.?request|validation", re.IGNORECASE), Outcome.CLIENT_ERROR),
)


def classify(status: int, headers: Mapping[str, str], body: bytes) -> Outcome:
    """The outcome of a response, for a server of which nothing particular is known.

    Args:
        status: the HTTP status.
        headers: the response's headers, in any case.
        body: the body, or its beginning; it may be empty for a success that streams.
    """
    if status // 100 == _SUCCESS:
        return _of_success(headers, body)
    start = body[:_LOOK_BYTES]
    if status in _MAY_BE_THE_REQUESTS_FAULT and _REQUEST_AT_FAULT.search(start):
        return Outcome.CLIENT_ERROR
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return _of_unavailable(headers, start)
    if status == HTTPStatus.BAD_REQUEST and _NO_SUCH_MODEL.search(start):
        return Outcome.CONFIGURATION
    return _BY_STATUS.get(status) or _BY_HUNDRED.get(status // 100, Outcome.FAILURE)


def classify_error(error: BaseException) -> Outcome:
    """The outcome of a request that ended with an exception instead of a response."""
    if isinstance(error, asyncio.CancelledError):
        return Outcome.CANCELLED
    if isinstance(error, UpstreamTimeout | TimeoutError):
        return Outcome.TIMEOUT
    return Outcome.FAILURE


def hint(error: BaseException) -> str | None:
    """What an operator could do about it, where the error is likely one of configuration."""
    cause: BaseException | None = error
    for _ in range(8):  # causes can form a ring
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "TLS: the certificate is not trusted; check the host name and the CA"
        if isinstance(cause, ssl.SSLError):
            return "TLS failed; check that base_url has the right scheme (http or https) and port"
        if cause is None:
            break
        cause = cause.__cause__ or cause.__context__
    return None


def stream_error(first_event: bytes) -> Outcome | None:
    """The outcome of an error that a server put inside a response that began with 200.

    Args:
        first_event: the first SSE event or JSON line; a whole JSON body will do.

    Returns:
        None when it is not an error.
    """
    # Every stream passes here: look closer only where the word is.
    if b"error" not in first_event:
        return None
    for payload in _payloads(first_event):
        event = as_dict(parse_json(payload))
        # LMDeploy says "object", Anthropic's API "type"; the Responses API puts it one step deeper.
        is_error = event.get("type") == "error" or event.get("object") == "error"
        error = event.get("error") or as_dict(event.get("response")).get("error")
        error = error or (event if is_error else None)
        if isinstance(error, str | dict):
            return _of_error(as_dict(error) or event, payload.encode())
    return None


def _of_success(headers: Mapping[str, str], body: bytes) -> Outcome:
    start = body[:64].lstrip().lower()
    if start.startswith((b"<!doctype", b"<html")):
        return Outcome.FAILURE
    if header(headers, "content-type").lower().startswith("text/html"):
        return Outcome.FAILURE  # a login page, or a proxy's
    return stream_error(body[:_LOOK_BYTES]) or Outcome.OK


def _of_unavailable(headers: Mapping[str, str], start: bytes) -> Outcome:
    if _LOADING.search(start):
        return Outcome.LOADING
    if _OVERLOADED.search(start) or header(headers, "retry-after"):
        return Outcome.CONGESTION
    # A plain 503 is mostly a proxy that finds nobody behind it.
    return Outcome.FAILURE


def _of_error(error: Mapping[str, object], text: bytes) -> Outcome:
    for key in ("code", "status", "status_code"):
        status = _http_status(error.get(key))
        if status is not None:
            return classify(status, {}, text)
    start = text[:_LOOK_BYTES]
    return next((outcome for words, outcome in _BY_TEXT if words.search(start)), Outcome.FAILURE)


def _http_status(value: object) -> int | None:
    """An error's code, where it is an HTTP status; many are not."""
    if not isinstance(value, int | str):
        return None
    try:
        status = int(value)
    except ValueError:
        return None
    return status if status // 100 in {4, 5} else None


def _payloads(event: bytes) -> Iterator[str]:
    text = event.decode("utf-8-sig", errors="replace")
    if text.lstrip().startswith("{"):
        yield text
    for line in text.splitlines():
        # "error:" is how older llama.cpp servers put it.
        for prefix in ("data:", "error:"):
            if line.startswith(prefix):
                payload = line.removeprefix(prefix).strip()
                yield payload if prefix == "data:" else f'{{"error": {payload}}}'
