"""Refusals: what a client is told when it gets no answer from an endpoint.

The body has the shape of OpenAI's errors, so that every OpenAI client can read it.
"""

from __future__ import annotations

import asyncio
from math import ceil
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.core.model import Reason

if TYPE_CHECKING:
    from forebay.errors import Rejected
    from forebay.proxy.message import Headers, Request, Responder

_STATUS = {
    Reason.QUEUE_FULL: 429,
    Reason.DEADLINE: 504,
    Reason.UNKNOWN_MODEL: 404,
}
_BUSY = 503
_TRY_AGAIN = frozenset({429, _BUSY})
# For a client that sends on although it has been refused.
_LINGER_S = 5.0


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """Ends the handling of a request with an error for its client.

    Args:
        status: of the HTTP response.
        message: for people.
        code: short and stable, for programs.
        param: the part of the request that is wrong, if it is one.
        retry_after_s: when to try again; 429 and 503 always tell.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        if retry_after_s is None and status in _TRY_AGAIN:
            retry_after_s = 1
        self.retry_after_s = retry_after_s
        self.errors: list[dict[str, Any]] = []  # of each input, where they differ

    @classmethod
    def of(cls, rejected: Rejected) -> Refused:
        """The answer to a request that was not admitted."""
        status = _STATUS.get(Reason(rejected.reason), _BUSY)
        seconds = rejected.retry_after_s
        return cls(status, str(rejected), code=rejected.reason, retry_after_s=seconds)

    @property
    def body(self) -> bytes:
        """The JSON that says so."""
        error = {
            "message": str(self),
            "type": _type(self.status),
            "param": self.param,
            "code": self.code,
        }
        told: dict[str, Any] = {"error": error}
        if self.errors:
            told["errors"] = self.errors
        return msgspec.json.encode(told)

    def headers(self, own: Headers) -> Headers:
        """The headers of a response that says so, and `own` ones."""
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(self.body)).encode()),
            *own,
        ]
        if self.retry_after_s is not None:
            headers.append((b"retry-after", str(max(1, ceil(self.retry_after_s))).encode()))
        return headers

    async def answer(self, responder: Responder, own: Headers) -> None:
        """Send it: as a response; as an event if a stream has begun; else cut what has begun."""
        body = self.body
        if responder.started:
            if responder.event_stream:
                # The blank line ends an event that was cut short, if one was.
                await responder.end(b"\n\ndata: " + body + b"\n\n")
            else:
                responder.cut()
            return
        responder.start(self.status, self.headers(own))
        await responder.end(body)


def internal_error() -> Refused:
    """The answer where this program is at fault; whoever gives it logs the fault."""
    return Refused(500, "the gateway failed; its log says how", code="internal_error")


def shutting_down() -> Refused:
    """The answer to what is cut short because this process ends."""
    return Refused(503, "shutting down", code=Reason.SHUTTING_DOWN)


def tell_and_close(refused: Refused, responder: Responder) -> None:
    """Refuse, and announce the connection's end; nothing is waited for."""
    responder.start(refused.status, refused.headers([(b"connection", b"close")]))
    responder.write(refused.body)


async def answer_unread(
    refused: Refused, unread: asyncio.Future[None], request: Request, responder: Responder
) -> None:
    """Refuse a request of which the body is not read; the end of the answer closes."""
    del request
    tell_and_close(refused, responder)
    await asyncio.wait([unread], timeout=_LINGER_S)
    await responder.end()


def _type(status: int) -> str:
    """OpenAI's name for a kind of error."""
    names = {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        429: "rate_limit_error",
    }
    if status in names:
        return names[status]
    return "invalid_request_error" if status < 500 else "server_error"  # noqa: PLR2004
