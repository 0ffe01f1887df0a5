"""One request for embeddings to the session's data plane, and what comes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.adapters.engines.reply import as_dict
from forebay.adapters.engines.retry_after import retry_after_s
from forebay.client.fan_out import FOR_ALL
from forebay.client.http.reply import BrokenOff
from forebay.client.vectors import unpacked
from forebay.core.model import Reason
from forebay.errors import ForebayError, Rejected, RequestFailed
from forebay.proxy.embeddings.held import HeldAnswer, InvalidAnswer, Room
from forebay.proxy.embeddings.results import excerpt
from forebay.proxy.message import Request
from forebay.proxy.refusal import Refused

if TYPE_CHECKING:
    from forebay.client.http.inside import Inside
    from forebay.client.slots import Priority

_BAD_REQUEST, _TOO_MANY, _BAD_GATEWAY = 400, 429, 502
_REASONS = frozenset(Reason)
_NOT_FOUND, _UPSTREAM = "model_not_found", "upstream_error"
_MOST_TRIES = 3
_PAUSE_S, _LEAST_S = 1.0, 0.001
_REFUSED = "refused"  # by an endpoint, in its own words
_NAMED = re.compile(r"^input(\[\d+\])?")


@dataclass(frozen=True)
class Texts:
    """What is asked for; see `Embedding.embed`."""

    model: str
    dimensions: int | None
    timeout_s: float | None
    priority: Priority | None
    collect: bool

    def request(self, block: list[str], left_s: float) -> Request:
        """The request for a block, in the time that is left."""
        body: dict[str, Any] = {"model": self.model, "input": block, "encoding_format": "base64"}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        headers = [(b"content-type", b"application/json"), (b"x-forebay-partial", b"true")]
        if self.priority is not None:
            headers.append((b"x-forebay-priority", self.priority.encode()))
        if self.timeout_s is not None and left_s < inf:
            headers.append((b"x-request-timeout", b"%f" % max(left_s, _LEAST_S)))
        return Request(b"POST", b"/v1/embeddings", b"", headers, msgspec.json.encode(body))


class _Vector(msgspec.Struct):
    index: int
    embedding: str


class _Failure(msgspec.Struct):
    index: int
    status: int
    code: str
    message: str


class _Answer(msgspec.Struct):
    data: list[_Vector] = []
    errors: list[_Failure] = []


_answer = msgspec.json.Decoder(_Answer)


@dataclass(frozen=True)
class Found:
    """Rows and errors, and when those that come later may be asked for."""

    rows: list[Any]
    pause_s: float


async def ask(inside: Inside, request: Request, count: int) -> Found:
    """Ask for the vectors of so many texts.

    Raises:
        Rejected: no text would fare better.
        UsageError: the session is closed, or this is a forked child.
    """
    sent = inside.send(request)
    held = HeldAnswer(Room())
    try:
        await sent.reply.head(None)
        held.start(sent.reply.status, sent.reply.headers)
        while piece := await sent.reply.read(None):
            await held.write(piece)
        body = held.content()
    except BrokenOff as error:  # nothing else breaks what is answered whole
        raise Rejected(Reason.SHUTTING_DOWN, str(error)) from error
    except (InvalidAnswer, Refused) as error:
        failed = RequestFailed(_REFUSED, str(error), _BAD_GATEWAY)
        return Found([failed] * count, _PAUSE_S)
    finally:
        sent.stop()
    return Found(_rows(body, count), _PAUSE_S) if held.ok else _refused(held, body, count)


def _rows(body: bytes, count: int, rest: ForebayError | None = None) -> list[Any]:
    """What an answer has for each text; `rest` for those that it does not tell of."""
    answer = _answer.decode(body)
    rows: list[Any] = [rest] * count
    for vector in answer.data:
        rows[vector.index] = unpacked(vector.embedding)
    for failure in answer.errors:
        rows[failure.index] = _error(failure.code, failure.message, failure.status)
    return rows


def _refused(held: HeldAnswer, body: bytes, count: int) -> Found:
    """A request that got no vector at all.

    Raises:
        Rejected: none of this job's texts would fare better.
    """
    code, message = _told(body)
    fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in held.headers}
    rest_s = retry_after_s(fields, now=datetime.now(UTC))
    error = _error(code, message, held.status, rest_s)
    if isinstance(error, Rejected) and error.reason in FOR_ALL:
        raise error
    try:
        rows = _rows(body, count, error)  # each text's own reason, where they differ
    except msgspec.MsgspecError:
        rows = [error] * count
    # Its own admission may be asked often: a probe may have come back long before that time.
    own = isinstance(error, Rejected)
    return Found(rows, min(rest_s or _PAUSE_S, _PAUSE_S) if own else rest_s or _PAUSE_S)


def _told(body: bytes) -> tuple[str, str]:
    """A refusal's code and message: Forebay's own, or an endpoint's, which has any shape."""
    try:
        problem = as_dict(as_dict(msgspec.json.decode(body)).get("error"))
    except msgspec.MsgspecError:
        problem = {}
    code, message = problem.get("code"), problem.get("message")
    if isinstance(code, str) and isinstance(message, str):
        return code, message
    return _REFUSED, excerpt(body)


def _error(code: str, message: str, status: int, rest_s: float | None = None) -> ForebayError:
    if code == _NOT_FOUND:  # it was there when the job began
        return Rejected(Reason.UNKNOWN_MODEL, message)
    if code in _REASONS:
        return Rejected(code, message, rest_s)
    return RequestFailed(code, message, status)


def named(error: ForebayError, number: int) -> ForebayError:
    """The error with the text's number in the whole job, in place of that in its request."""
    message = _NAMED.sub(f"text {number}", str(error))
    if isinstance(error, Rejected):
        return Rejected(error.reason, message, error.retry_after_s)
    if isinstance(error, RequestFailed):
        return RequestFailed(error.code, message, error.status)
    return error


def comes_later(row: object, tries: int) -> bool:
    """Whether a text may get its vector from the same request, a little later.

    Args:
        row: what came of it.
        tries: so many requests for it have been made. What fails at an endpoint is tried three
            times; while the endpoint is away it is not even sent, and waits.
    """
    if isinstance(row, Rejected):
        return row.reason not in {Reason.DEADLINE, *FOR_ALL}
    if not isinstance(row, RequestFailed):
        return False
    return row.status == _TOO_MANY or (row.code == _UPSTREAM and tries < _MOST_TRIES)


def wrong_with(number: int, text: object) -> RequestFailed | None:
    """What is wrong with a text, whatever the model."""
    if not isinstance(text, str):
        raise TypeError(f"text {number} is {text!r}; give a str")
    if not text:
        return RequestFailed("input_empty", f"text {number} is empty; leave it out", _BAD_REQUEST)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return RequestFailed("input_invalid", f"text {number} is no Unicode: {error}", _BAD_REQUEST)
    return None
