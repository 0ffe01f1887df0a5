"""What is left to ask for of one request, and in which pieces. No IO.

A piece is cut when its endpoint is known, by what that endpoint takes. One that is refused comes
back as it was, to be cut by the limits of whichever endpoint gets it next; or in two halves, to see
which of them is refused again. One that failed is left for another endpoint.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from forebay.adapters.engines.batching import BatchLimits
from forebay.proxy.embeddings.piece import Attempts, Halves, Piece, Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forebay.proxy.embeddings.inputs import Inputs
    from forebay.proxy.embeddings.known import KnownEndpoint

# Of the sizes in `BatchLimits`, the one that a refusal is about.
Measure = Literal["max_inputs", "max_body_bytes", "max_tokens"]

# Pieces of one request that are halved. One input among n is found after log2(n) of them.
_MOST_HALVED = 128


@dataclass(slots=True)
class Remaining:
    """What is left to ask for of one request.

    Args:
        inputs: of the request.
        in_pieces: others are to get in between, even where the endpoint takes all of it at once.

    Attributes:
        as_float: some endpoint refused base64, so floats are asked for.
        one_at_a_time: two pieces at once would be more than a server has room for.
    """

    inputs: Inputs
    in_pieces: bool
    as_float: bool = field(default=False, init=False)
    one_at_a_time: bool = field(default=False, init=False)
    _ranges: list[Range] = field(init=False)  # in order
    # Inputs in a piece, by endpoint: what was refused for load by one that had no other load.
    _most: dict[str, int] = field(default_factory=dict, init=False)
    _halved: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._ranges = [Range(0, len(self.inputs))]

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def is_one_piece(self, known: KnownEndpoint) -> bool:
        """Whether the endpoint takes the whole request, as far as is known."""
        return self._end(0, len(self.inputs), known) == len(self.inputs)

    def next_tokens(self, endpoints: Iterable[KnownEndpoint]) -> int:
        """The most tokens that the next piece may have, at whichever of the endpoints."""
        start, stop, *_ = self._ranges[0]
        ends = (self._end(start, stop, endpoint) for endpoint in endpoints)
        return self.inputs.tokens(start, max(ends, default=stop))

    @property
    def next_attempts(self) -> Attempts:
        """What has come of the next piece so far."""
        return self._ranges[0].attempts

    def take(self, known: KnownEndpoint, most_tokens: int) -> Piece:
        """Take as much of what is left as the endpoint takes at once, and the slot was given for.

        Args:
            known: the endpoint.
            most_tokens: what `next_tokens` said when the slot was asked for.
        """
        range_ = self._ranges.pop(self._first_for(known))
        start, stop, half_of, attempts, failed_alone = range_
        stop_at = self.inputs.until_tokens(start, stop, most_tokens)
        end = self._end(start, max(stop_at, start + 1), known)
        if end < stop:
            self._insert(range_._replace(start=end))
        as_float = self.inputs.encoding == "base64" and (self.as_float or known.refuses_base64)
        return Piece(start, end, known, as_float, half_of, attempts, failed_alone)

    def _first_for(self, known: KnownEndpoint) -> int:
        """The place of the first range that has not failed there; the first one if all have.

        Another one may have come back since the slot was asked for.
        """
        id_ = known.target.id
        places = (n for n, r in enumerate(self._ranges) if id_ not in r.attempts.avoid)
        return next(places, 0)

    def passed(self, piece: Piece) -> None:
        """A piece was answered. Where both halves were, the whole had been too large.

        Whoever answered them: no input was to blame. But where one input alone had failed before,
        so may the whole have: by chance, and not for its size.
        """
        halves = piece.half_of
        if halves is not None and not piece.failed_alone:
            halves.left -= piece.inputs
            if not halves.left:
                halves.known.find(halves.size)

    # -- what was refused ------------------------------------------------------------------------

    def put_back(self, piece: Piece, attempts: Attempts | None = None) -> None:
        """Ask for a piece again, cut as the endpoint takes it that gets it then.

        Together with what is next to it, if that went the same way, since that endpoint may take
        more at once.

        Args:
            piece: that comes again.
            attempts: those that failed, if it is left for another endpoint than they were at.
        """
        attempts = piece.attempts if attempts is None else attempts
        start, stop, at = piece.start, piece.stop, self._place(piece.start)
        if at < len(self._ranges) and self._ranges[at].joins(stop, attempts):
            stop = self._ranges.pop(at).stop
        if at and self._ranges[at - 1].joins(start, attempts):
            start = self._ranges.pop(at - 1).start
        self._insert(Range(start, stop, attempts=attempts))

    def halve(self, piece: Piece, measure: Measure, *, after_failure: bool = False) -> bool:
        """Ask for a piece again in two halves.

        Args:
            piece: that was refused.
            measure: by what it is judged to have been too large, if both halves pass.
            after_failure: see `Halves`.

        Returns:
            False if it cannot be halved, or enough has been.
        """
        if piece.inputs == 1 or self._halved >= _MOST_HALVED:
            return False
        self._halved += 1
        middle = piece.start + piece.inputs // 2
        size = max(
            self._size(piece.start, middle, measure), self._size(middle, piece.stop, measure)
        )
        halves = Halves(piece.known, after_failure, BatchLimits(**{measure: size}), piece.inputs)
        self._insert(Range(piece.start, middle, halves, piece.attempts))
        self._insert(Range(middle, piece.stop, halves, piece.attempts))
        return True

    def once_more(self, piece: Piece) -> None:
        """Ask for a piece of one input again, as its endpoint failed of it for the first time.

        Whoever gets it: that another endpoint fails of it in between must not begin that anew.
        """
        failed_alone = (*piece.failed_alone, piece.known)
        self._insert(Range(piece.start, piece.stop, piece.half_of, piece.attempts, failed_alone))

    def fewer_at_once(self, piece: Piece) -> None:
        """Ask for a piece again half by half, one after the other, as long as it is this endpoint.

        TEI counts inputs, and has never room for more than it has permits, however idle it is.
        """
        self.one_at_a_time = True
        self._most[piece.known.target.id] = max(1, piece.inputs // 2)
        self.put_back(piece)

    def fits(self, piece: Piece) -> bool:
        """Whether the piece would be cut as it is, by what is known of its endpoint now."""
        return self._end(piece.start, piece.stop, piece.known) == piece.stop

    def give_up(self) -> Iterator[Range]:
        """Ask for nothing more; yields what was left to ask for."""
        while self._ranges:
            yield self._ranges.pop(0)

    def _insert(self, range_: Range) -> None:
        self._ranges.insert(self._place(range_.start), range_)

    def _place(self, start: int) -> int:
        """Where a range from `start` on belongs."""
        return bisect_left(self._ranges, start, key=lambda range_: range_.start)

    def _size(self, start: int, stop: int, measure: Measure) -> int:
        if measure == "max_inputs":
            return stop - start
        if measure == "max_tokens":
            return self.inputs.tokens(start, stop)
        return self.inputs.size(start, stop)

    def _end(self, start: int, stop: int, known: KnownEndpoint) -> int:
        """Where a request that begins at `start` must end to fit; always after one input."""
        limits, inputs = known.limits, self.inputs
        refused = self._most.get(known.target.id) if self._most else None
        for most in (refused, limits.max_inputs, limits.max_inputs_in_flight):
            if most is not None:
                stop = min(stop, start + most)
        piece_tokens = known.target.piece_tokens if self.in_pieces else None
        for most in (piece_tokens, limits.max_tokens):
            if most is not None:
                stop = min(stop, inputs.until_tokens(start, stop, most))
        most_bytes = limits.max_body_bytes
        if most_bytes is not None and len(inputs.request) > most_bytes:
            stop = inputs.until(start, stop, most_bytes)
        return max(stop, start + 1)
