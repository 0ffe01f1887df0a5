"""What is left to ask for of one request, in which pieces, and how after a refusal. No IO."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.adapters.engines.batching import BatchLimits, limits_from_refusal
from forebay.gateway.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.gateway.embeddings.inputs import Inputs
    from forebay.gateway.embeddings.known import KnownEndpoint

# Times that a request is made smaller because an idle server refused it for load.
_MOST_HALVINGS = 8
_BASE64_REFUSED = re.compile(rb"base64|encoding_format", re.IGNORECASE)
_EXCERPT_BYTES = 300
_NOWHERE: frozenset[str] = frozenset()
_NO_LIMITS = BatchLimits()
_TOO_LARGE, _BUSY = 413, 429


@dataclass(slots=True)
class Piece:
    """Some of a request's inputs, for one endpoint.

    Args:
        start: index of the first.
        stop: the index after the last.
        known: the endpoint.
        as_float: floats are asked for, though the client wants base64.
        avoid: ids of endpoints where these inputs failed already.
    """

    start: int
    stop: int
    known: KnownEndpoint
    as_float: bool
    avoid: frozenset[str] = frozenset()

    @property
    def inputs(self) -> int:
        """How many."""
        return self.stop - self.start


class Remaining:
    """What is left to ask for of one request.

    Args:
        inputs: of the request.
        in_pieces: others are to get in between, even where the endpoint takes all of it at once.
    """

    def __init__(self, inputs: Inputs, *, in_pieces: bool) -> None:
        self._inputs = inputs
        self._in_pieces = in_pieces
        # First and after-last input, and the endpoints where they failed already.
        self._ranges = deque([(0, len(inputs), _NOWHERE)])
        self._most = len(inputs)  # in a piece, after refusals that told no limit
        self._halvings = 0
        self._as_float = False

    def __repr__(self) -> str:
        return f"<Remaining {list(self._ranges)}>"

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def one_at_a_time(self) -> bool:
        """Whether two pieces at once would be more than a server has room for."""
        return self._halvings > 0

    def is_one_piece(self, known: KnownEndpoint) -> bool:
        """Whether the endpoint takes the whole request, as far as is known."""
        return self._end(0, len(self._inputs), known) == len(self._inputs)

    def next_tokens(self, endpoints: Iterable[KnownEndpoint]) -> int:
        """The most tokens that the next piece may have, at whichever of the endpoints."""
        start, stop, _ = self._ranges[0]
        return self._inputs.tokens(start, max(self._end(start, stop, e) for e in endpoints))

    @property
    def next_avoid(self) -> frozenset[str]:
        """Where the next piece has failed already."""
        return self._ranges[0][2]

    def take(self, known: KnownEndpoint, most_tokens: int) -> Piece:
        """Take as much of what is left as the endpoint takes at once, and the slot was given for.

        Args:
            known: the endpoint.
            most_tokens: what `next_tokens` said when the slot was asked for.
        """
        start, stop, avoid = self._ranges.popleft()
        stop_at = self._inputs.until_tokens(start, stop, most_tokens)
        end = self._end(start, max(stop_at, start + 1), known)
        if end < stop:
            self._ranges.appendleft((end, stop, avoid))
        as_float = self._inputs.encoding == "base64" and (self._as_float or known.refuses_base64)
        return Piece(start, end, known, as_float, avoid)

    def put_back(self, piece: Piece, avoid: frozenset[str]) -> None:
        """Leave a piece that failed for another endpoint: one that is none of `avoid`.

        It is last in line, since whoever waits for a slot now asked for what is first.
        """
        self._ranges.append((piece.start, piece.stop, avoid))

    def ask_again(self, piece: Piece, status: int, body: bytes, *, alone: bool) -> bool:
        """Put a piece that was refused back if it can be asked for in another way.

        Args:
            piece: that was refused.
            status: of the refusal.
            body: the beginning of the refusal.
            alone: the server worked on nothing but this request, and did not say when to return.

        Returns:
            False if the refusal is final.

        Raises:
            Refused: the only input of the piece is too large.
        """
        limits = limits_from_refusal(status, body)
        if status == _TOO_LARGE or limits != _NO_LIMITS:
            self._make_smaller(piece, limits, body)
        elif (
            status in {400, 422}
            and self._inputs.encoding == "base64"
            and not piece.as_float
            and _BASE64_REFUSED.search(body)
        ):
            self._as_float = True
        elif status == _BUSY and alone and piece.inputs > 1 and self._halvings < _MOST_HALVINGS:
            # TEI counts inputs, and has never room for more than it has permits, however idle.
            self._halvings += 1
            self._most = piece.inputs // 2
        else:
            return False
        self._ranges.appendleft((piece.start, piece.stop, piece.avoid))
        return True

    def _make_smaller(self, piece: Piece, limits: BatchLimits, body: bytes) -> None:
        if piece.inputs == 1:
            reason = " ".join(body[:_EXCERPT_BYTES].decode("utf-8", "replace").split())
            message = f"input[{piece.start}] is too large for {piece.known.target.name}: {reason}"
            raise Refused(_TOO_LARGE, message, code="input_too_large", param="input")
        piece.known.learn(limits)
        if self._end(piece.start, piece.stop, piece.known) == piece.stop:
            # It was not told what would fit, or that was not the reason.
            self._most = min(self._most, piece.inputs // 2)

    def _end(self, start: int, stop: int, known: KnownEndpoint) -> int:
        """Where a request that begins at `start` must end to fit; always after one input."""
        limits = known.limits
        for most in (self._most, limits.max_inputs, limits.max_inputs_in_flight):
            if most is not None:
                stop = min(stop, start + most)
        if self._in_pieces and known.target.piece_tokens is not None:
            stop = min(stop, self._inputs.until_tokens(start, stop, known.target.piece_tokens))
        most_bytes = limits.max_body_bytes
        if most_bytes is not None and len(self._inputs.request) > most_bytes:
            stop = self._inputs.until(start, stop, most_bytes)
        return max(stop, start + 1)
