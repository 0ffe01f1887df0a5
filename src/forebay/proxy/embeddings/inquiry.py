"""Why a piece was refused, and how to ask for its inputs again.

Theory of operation. A refusal that tells why is acted upon: the piece is cut by the limit that it
tells, asked for in the other encoding, or sent in smaller parts. One that does not may be about the
size of the batch, about one input in it, or about anything else, and only asking again tells which:

1. A request with the client's settings and one harmless input goes to the same endpoint, in the
   same slot. If that fails, no input is to blame: the refusal is the answer.
2. The piece is asked for again in two halves; a half that is refused, again in two, and so on. One
   input among n is found after log2(n) steps, and named. If both halves pass, the batch was too
   large for the endpoint, which from now on gets no larger ones for a while.
3. An input at which the endpoint fails by itself is asked for once more: the failure may have been
   a passing one. It is named when that fails too.

Only what the endpoint answers itself is looked into: one that cannot be reached, or has nobody
behind it (502, 503), is down. The breaker counts the first failure as it counts any; what the
halves bring says nothing of the endpoint, since it has been told by the whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from forebay.adapters.engines.batching import NO_LIMITS, limits_from_refusal
from forebay.core.model import Ending, Outcome
from forebay.proxy.embeddings.held import HeldAnswer
from forebay.proxy.embeddings.results import excerpt
from forebay.proxy.exchange import Exchange
from forebay.proxy.failure import Failed
from forebay.proxy.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.adapters.engines.batching import BatchLimits
    from forebay.drivers.lease import Lease
    from forebay.proxy.call import Call
    from forebay.proxy.embeddings.held import Room
    from forebay.proxy.embeddings.piece import Piece
    from forebay.proxy.embeddings.remaining import Measure, Remaining

_CLIENT_ERROR, _FAILURE = Outcome.CLIENT_ERROR, Outcome.FAILURE
_TOO_LARGE, _UNPROCESSABLE, _BUSY, _SERVER_ERROR = 413, 422, 429, 500
# Said by an engine that works, of one batch; 424 by TEI, of its backend (out of memory).
_ENGINE_FAILED = frozenset({_SERVER_ERROR, 424})
_BASE64_REFUSED = re.compile(rb"base64|encoding_format", re.IGNORECASE)
# Times that a request is made smaller because an idle server refused it for load.
_MOST_TIMES_FEWER = 8


class Refusal(NamedTuple):
    """What an endpoint said to a piece.

    Args:
        status: of its answer.
        body: the beginning of it, as far as it is known.
        ending: what it tells of the endpoint.
        alone: the endpoint worked on nothing but this request.
    """

    status: int
    body: bytes
    ending: Ending
    alone: bool


class InputFailed(Failed):
    """An input at which its endpoint fails. Another one may not, which is worth an attempt."""


class Inquiry:
    """Looks into the refusals of one request's pieces.

    Args:
        call: the request.
        remaining: where pieces that come again go.
        room: see `HeldAnswer`.
        once_more: whether an input may be asked for again at the endpoint that failed of it; called
            only if it is to be.
    """

    def __init__(
        self, call: Call, remaining: Remaining, room: Room, once_more: Callable[[], bool]
    ) -> None:
        self._call = call
        self._remaining = remaining
        self._room = room
        self._once_more = once_more
        self._times_fewer = 0
        self._serving: set[str] = set()  # ids of endpoints that have served this request

    def passed(self, piece: Piece) -> None:
        """A piece was answered."""
        self._serving.add(piece.known.target.id)
        self._remaining.passed(piece)

    async def asks_again(self, piece: Piece, refusal: Refusal, lease: Lease) -> Ending | None:
        """Put the inputs of a refused piece back if there is another way to ask for them.

        Args:
            piece: that was refused.
            refusal: how.
            lease: its slot, still held.

        Returns:
            How the piece ended, if it comes again; None if the refusal is final.

        Raises:
            Failed: the only input of the piece is to blame, and named.
        """
        refusal = _translated(refusal)
        limits = limits_from_refusal(refusal.status, refusal.body)
        if refusal.status == _TOO_LARGE or limits != NO_LIMITS:
            self._make_smaller(piece, limits, refusal)
            return refusal.ending
        if self._is_about_base64(piece, refusal):
            self._remaining.as_float = True
            self._remaining.put_back(piece)
            return refusal.ending
        if self._is_full(piece, refusal):
            self._times_fewer += 1
            self._remaining.fewer_at_once(piece)
            return refusal.ending
        return await self._look_for_the_input(piece, refusal, lease)

    def _make_smaller(self, piece: Piece, limits: BatchLimits, refusal: Refusal) -> None:
        if piece.inputs == 1:
            said = excerpt(refusal.body)
            message = f"input[{piece.start}] is too large for {piece.known.target.name}: {said}"
            refused = Refused(_TOO_LARGE, message, code="input_too_large", param="input")
            raise Failed(refused, refusal.ending)
        piece.known.learn(limits)
        if not self._remaining.fits(piece):
            self._remaining.put_back(piece)
            return
        # It was not told what would fit, or that was not the reason.
        measure: Measure = "max_tokens" if limits.max_tokens else "max_body_bytes"
        if not self._remaining.halve(piece, measure):
            message = f"{piece.known.target.name} refuses batches of any size: "
            refused = Refused(_TOO_LARGE, message + excerpt(refusal.body), code="upstream_error")
            raise Failed(refused, refusal.ending)

    def _is_about_base64(self, piece: Piece, refusal: Refusal) -> bool:
        return (
            refusal.status in {400, _UNPROCESSABLE}
            and self._remaining.inputs.encoding == "base64"
            and not piece.as_float
            and _BASE64_REFUSED.search(refusal.body) is not None
        )

    def _is_full(self, piece: Piece, refusal: Refusal) -> bool:
        return (
            refusal.status == _BUSY
            and refusal.alone
            and refusal.ending.retry_after_s is None
            and piece.inputs > 1
            and self._times_fewer < _MOST_TIMES_FEWER
        )

    async def _look_for_the_input(
        self, piece: Piece, refusal: Refusal, lease: Lease
    ) -> Ending | None:
        failed = refusal.ending.outcome is _FAILURE and refusal.status in _ENGINE_FAILED
        if not failed and refusal.ending.outcome is not _CLIENT_ERROR:
            return None
        if len(self._remaining.inputs) == 1:
            return None
        if not await self._serves(piece, lease, again=failed):
            return None
        ending = Ending(_CLIENT_ERROR) if failed and piece.after_failure else refusal.ending
        if piece.inputs == 1:
            if failed and piece.known not in piece.failed_alone:
                if self._once_more():
                    self._remaining.once_more(piece)
                    return ending
                if not piece.after_failure:  # once is not enough, with a larger piece it was twice
                    return None
            raise _named(piece, refusal, ending, failed=failed)
        measure: Measure = "max_tokens" if failed else "max_inputs"
        return ending if self._remaining.halve(piece, measure, after_failure=failed) else None

    async def _serves(self, piece: Piece, lease: Lease, *, again: bool) -> bool:
        """Whether the endpoint serves requests like this one.

        Args:
            piece: of which it is to be known.
            lease: its slot.
            again: it may have broken since it served one.
        """
        target = piece.known.target
        if again:
            # Between the first failure and the input to blame, the other halves show it.
            if piece.after_failure and piece.inputs > 1:
                return True
        elif target.id in self._serving:
            return True
        held = HeldAnswer(self._room)
        body = self._remaining.inputs.harmless(as_float=piece.as_float)
        try:
            await Exchange(self._call.part(body, held), target, lease).run()
        except Failed:
            return False
        finally:
            held.drop()
        if held.ok:
            self._serving.add(target.id)
        return held.ok


def _translated(refusal: Refusal) -> Refusal:
    """llama.cpp and Ollama call an input that is too large a failure of their own."""
    if refusal.status == _SERVER_ERROR and refusal.ending.outcome is _CLIENT_ERROR:
        return refusal._replace(status=_TOO_LARGE)
    return refusal


def _named(piece: Piece, refusal: Refusal, ending: Ending, *, failed: bool) -> Failed:
    """The refusal of the one input to blame."""
    name, said = piece.known.target.name, excerpt(refusal.body)
    if failed:  # asking for it again would not help, which a status of 500 would promise
        message = f"input[{piece.start}] makes {name} fail with {refusal.status}: {said}"
        refused = Refused(_UNPROCESSABLE, message, code="input_failed", param="input")
        return InputFailed(refused, ending)
    message = f"input[{piece.start}] is refused by {name}: {said}"
    return Failed(Refused(refusal.status, message, code="input_refused", param="input"), ending)
