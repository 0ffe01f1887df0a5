"""What a failed exchange means: the client is told, the endpoint is judged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.adapters.engines.status import classify_error, hint
from forebay.core.model import Ending, Outcome
from forebay.errors import UpstreamTimeout
from forebay.proxy.refusal import Refused

if TYPE_CHECKING:
    from forebay.errors import PoolExhausted, UpstreamError
    from forebay.proxy.call import Call
    from forebay.proxy.message import Headers, Responder
    from forebay.proxy.target import Target

_BAD_REQUEST = 400
_BAD_GATEWAY, _UNAVAILABLE, _GATEWAY_TIMEOUT = 502, 503, 504
_STATUS_OF_STREAMED_ERROR = {
    Outcome.CLIENT_ERROR: _BAD_REQUEST,
    Outcome.CONGESTION: _UNAVAILABLE,
    Outcome.LOADING: _UNAVAILABLE,
}
_NO_FAULT = frozenset({Outcome.CONGESTION, Outcome.LOADING, Outcome.CLIENT_ERROR})
_CODE = "upstream_error"
_EXCERPT_BYTES = 500
# A time-out of the request's own deadline may fire this much before it: timers are rounded.
_TOLERANCE_S = 0.005


class Failed(Exception):  # noqa: N818 - it carries an answer
    """An exchange that ended without a whole answer for the client.

    Args:
        refused: what to tell the client.
        ending: what it tells of the endpoint.
    """

    def __init__(self, refused: Refused, ending: Ending) -> None:
        super().__init__(str(refused))
        self.refused = refused
        self.ending = ending

    @property
    def level(self) -> int:
        """How loudly to log it: no endpoint is to blame for being busy, or for a wrong request."""
        return logging.INFO if self.ending.outcome in _NO_FAULT else logging.WARNING


class OwnWords(Refused):
    """An endpoint's refusal that goes to the client as it came, if nothing else has gone before.

    Args:
        status: of the endpoint's answer.
        headers: as they go to the client.
        body: all of it.
        message: the same in short, for logs and streams that have begun.
    """

    def __init__(self, status: int, headers: Headers, body: bytes, message: str) -> None:
        super().__init__(status, message, code=_CODE)
        self.words = body
        self._headers = headers

    async def answer(self, responder: Responder, own: Headers) -> None:
        """Send it."""
        if responder.started:
            await super().answer(responder, own)
            return
        responder.start(self.status, self._headers)
        await responder.end(self.words)


def broken(target: Target, what: str) -> Failed:
    """The endpoint answered, but not as an endpoint does; `what` completes a sentence."""
    return Failed(_refused(_BAD_GATEWAY, f"{target.name} {what}"), Ending(Outcome.FAILURE))


def refused_upstream(target: Target, status: int, body: bytes, ending: Ending) -> Failed:
    """A refusal of the endpoint that cannot go to the client as it is."""
    ours = status if status // 100 in {4, 5} else _BAD_GATEWAY
    return Failed(_refused(ours, _said(target, status, body), ending.retry_after_s), ending)


def refused_in_its_words(
    target: Target, status: int, headers: Headers, body: bytes, ending: Ending
) -> Failed:
    """A refusal of the endpoint that can go to the client as it is, with these headers."""
    return Failed(OwnWords(status, headers, body, _said(target, status, body)), ending)


def error_in_success(target: Target, body: bytes, outcome: Outcome) -> Failed:
    """An error that came with status 200, as a body or as the first event of a stream."""
    status = _STATUS_OF_STREAMED_ERROR.get(outcome, _BAD_GATEWAY)
    message = f"{target.name} answered 200 with an error: {_excerpt(body)}"
    return Failed(_refused(status, message), Ending(outcome))


def saturated(target: Target, error: PoolExhausted) -> Failed:
    """This side can make no connection; the endpoint has nothing to do with it."""
    message = f"the gateway has no connection left for {target.name}: {error}"
    refused = Refused(_UNAVAILABLE, message, code="gateway_saturated")
    return Failed(refused, Ending(Outcome.CANCELLED))


def not_streamed(target: Target, path: bytes) -> Failed:
    """A stream was asked for and begun, and a good answer of another kind came."""
    message = (
        f"{target.name} does not stream {path.decode('latin-1')}; "
        'ask without "stream": true, then its answer can be passed on'
    )
    return Failed(
        Refused(_BAD_REQUEST, message, code="not_streamed", param="stream"),
        Ending(Outcome.CLIENT_ERROR),
    )


def no_answer(target: Target, call: Call, error: UpstreamError, *, begun: bool) -> Failed:
    """The endpoint could not be reached, went away, or did not answer in time.

    Args:
        target: the endpoint.
        call: the request.
        error: what happened.
        begun: some of the answer had come, so that not all of its time was the endpoint's silence.
    """
    outcome = classify_error(error)
    if not isinstance(error, UpstreamTimeout):
        advice = hint(error)
        message = f"{target.name} failed: {error}" + (f" ({advice})" if advice else "")
        return Failed(_refused(_BAD_GATEWAY, message), Ending(outcome))
    if call.clock() < call.deadline - _TOLERANCE_S:
        message = f"{target.name} did not answer in time: {error}"
        return Failed(Refused(_GATEWAY_TIMEOUT, message, code="timeout"), Ending(outcome))
    if begun or not call.deadline_is_default:
        # The answer was long or its reader slow, or the request ran out of a time of its own.
        outcome = Outcome.CANCELLED
    what = "had not ended its answer" if begun else "did not answer"
    message = f"{target.name} {what} before the request's deadline"
    return Failed(Refused(_GATEWAY_TIMEOUT, message, code="deadline"), Ending(outcome))


def _refused(status: int, message: str, retry_after_s: float | None = None) -> Refused:
    return Refused(status, message, code=_CODE, retry_after_s=retry_after_s)


def _said(target: Target, status: int, body: bytes) -> str:
    return f"{target.name} answered {status}: {_excerpt(body)}"


def _excerpt(body: bytes) -> str:
    return " ".join(body[:_EXCERPT_BYTES].decode("utf-8", "replace").split())
