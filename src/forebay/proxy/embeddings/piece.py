"""Some of a request's inputs: left to ask for, or asked for of an endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from forebay.adapters.engines.batching import BatchLimits
    from forebay.proxy.embeddings.known import KnownEndpoint
    from forebay.proxy.refusal import Refused


class Attempts(NamedTuple):
    """What has come of some inputs so far.

    Args:
        avoid: ids of endpoints where they failed, or would.
        refused: what the last of them said.
        made: how many there were.
    """

    avoid: frozenset[str] = frozenset()
    refused: Refused | None = None
    made: int = 0


_NONE_YET = Attempts()


@dataclass(slots=True, eq=False)
class Halves:
    """A piece that was refused, and comes again in two halves.

    Args:
        known: the endpoint that refused it.
        after_failure: it failed, rather than say that the request is wrong.
        size: of the larger half: what the endpoint takes, if both pass.
        left: inputs that have not passed, here or elsewhere.
    """

    known: KnownEndpoint
    after_failure: bool
    size: BatchLimits
    left: int


@dataclass(slots=True)
class Piece:
    """Some of a request's inputs, for one endpoint.

    Args:
        start: index of the first.
        stop: the index after the last.
        known: the endpoint.
        as_float: floats are asked for, though the client wants base64.
        half_of: what it is a half of, or a part of one.
        attempts: those before.
        failed_alone: the endpoints that failed of it, when it was the only input there.
    """

    start: int
    stop: int
    known: KnownEndpoint
    as_float: bool
    half_of: Halves | None = None
    attempts: Attempts = _NONE_YET
    failed_alone: tuple[KnownEndpoint, ...] = ()

    @property
    def inputs(self) -> int:
        """How many."""
        return self.stop - self.start

    @property
    def after_failure(self) -> bool:
        """Whether it is there to find out what the endpoint failed of."""
        whole = self.half_of
        if self.known in self.failed_alone:
            return True
        return whole is not None and whole.after_failure and whole.known is self.known


class Range(NamedTuple):
    """Inputs that are left to ask for; see `Piece`."""

    start: int
    stop: int
    half_of: Halves | None = None
    attempts: Attempts = _NONE_YET
    failed_alone: tuple[KnownEndpoint, ...] = ()

    def joins(self, place: int, attempts: Attempts) -> bool:
        """Whether it may be asked for together with inputs beside it.

        Args:
            place: where those inputs begin or end.
            attempts: what has come of them.
        """
        beside = place in {self.start, self.stop}
        is_apart = self.half_of is not None or self.failed_alone
        return beside and not is_apart and self.attempts.avoid == attempts.avoid
