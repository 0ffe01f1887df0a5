"""One request for embeddings to the session's data plane, and what comes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.adapters.engines.reply import as_dict
from forebay.client.vectors import unpacked
from forebay.core.model import Reason
from forebay.errors import ForebayError, Rejected, RequestFailed
from forebay.proxy.embeddings.results import excerpt
from forebay.proxy.message import Request

if TYPE_CHECKING:
    from forebay.client.http.inside import Inside
    from forebay.client.http.reply import Reply
    from forebay.client.slots import Priority

_OK, _BAD_REQUEST, _TOO_MANY = 200, 400, 429
_REASONS = frozenset(Reason)
# Refusals that every other text would get as well.
_FOR_ALL = {Reason.UNKNOWN_MODEL, Reason.NO_ROOM, Reason.SHUTTING_DOWN}
_PAUSE_S = 1.0
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

    def request(self, block: list[str]) -> Request:
        """The request for a block."""
        body: dict[str, Any] = {"model": self.model, "input": block, "encoding_format": "base64"}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        headers = [(b"content-type", b"application/json"), (b"x-forebay-partial", b"true")]
        if self.priority is not None:
            headers.append((b"x-forebay-priority", self.priority.encode()))
        if self.timeout_s is not None:
            headers.append((b"x-request-timeout", repr(float(self.timeout_s)).encode()))
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
    data: list[_Vector]
    errors: list[_Failure] = []


_answer = msgspec.json.Decoder(_Answer)


@dataclass(frozen=True)
class Found:
    """Rows and errors, and when those that come later may be asked for."""

    rows: list[Any]
    pause_s: float


async def ask(inside: Inside, wanted: Texts, texts: list[str]) -> Found:
    """Ask for the vectors of some texts.

    Raises:
        Rejected: no text would fare better.
        UsageError: the session is closed, or this is a forked child.
    """
    sent = inside.send(wanted.request(texts))
    reply, pieces = sent.reply, []
    try:
        await reply.head(None)
        while piece := await reply.read(None):
            pieces.append(piece)
    finally:
        sent.stop()
    body = b"".join(pieces)
    if reply.status != _OK:
        return _refused(reply, body, len(texts))
    answer = _answer.decode(body)
    rows: list[Any] = [None] * len(texts)
    for vector in answer.data:
        rows[vector.index] = unpacked(vector.embedding)
    for failure in answer.errors:
        rows[failure.index] = _error(failure.code, failure.message, failure.status)
    return Found(rows, _PAUSE_S)


def _refused(reply: Reply, body: bytes, count: int) -> Found:
    """A request that got no vector at all.

    Raises:
        Rejected: none of this job's texts would fare better.
    """
    code, message = _told(body)
    seconds = dict(reply.headers).get(b"retry-after")
    rest_s = None if seconds is None else float(seconds)
    error = _error(code, message, reply.status, rest_s)
    if isinstance(error, Rejected) and error.reason in _FOR_ALL:
        raise error
    return Found([error] * count, rest_s or _PAUSE_S)


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


def comes_later(row: object) -> bool:
    """Whether a text may get its vector from the same request, a little later."""
    if isinstance(row, Rejected):
        return row.reason not in {Reason.DEADLINE, *_FOR_ALL}
    return isinstance(row, RequestFailed) and row.status == _TOO_MANY


def wrong_with(number: int, text: object) -> RequestFailed | None:
    """What is wrong with a text, whatever the model."""
    if not isinstance(text, str):
        raise TypeError(f"text {number} is {text!r}; give a str")
    if not text:
        return RequestFailed("input_empty", f"text {number} is empty; leave it out", _BAD_REQUEST)
    return None
