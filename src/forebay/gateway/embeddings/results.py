"""What came of the pieces of one request: answers, and inputs that have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.gateway.refusal import Refused

if TYPE_CHECKING:
    from forebay.core.model import Ending
    from forebay.gateway.embeddings.answers import Answer
    from forebay.gateway.embeddings.held import HeldAnswer
    from forebay.gateway.message import Request

_EXCERPT_BYTES = 300
_PARTIAL = b"x-forebay-partial"
_YES, _NO = frozenset({b"true", b"1"}), frozenset({b"false", b"0"})


@dataclass(slots=True)
class Part:
    """What came back for one piece.

    Args:
        start: index of its first input.
        held: the endpoint's answer.
        answer: the same, understood; None if it is everything, and nothing needs to be changed.
    """

    start: int
    held: HeldAnswer
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class Failures:
    """Inputs without a vector, for one reason.

    Args:
        start: index of the first.
        stop: the index after the last.
        code: short and stable, for programs.
        message: for people.
    """

    start: int
    stop: int
    code: str
    message: str


class RefusedUpstream(Exception):  # noqa: N818 - an endpoint's answer, to be passed on
    """An endpoint's answer that is no success.

    Args:
        held: the answer.
        ending: what it tells of the endpoint.
        endpoint: how messages name it.
    """

    def __init__(self, held: HeldAnswer, ending: Ending, endpoint: str) -> None:
        super().__init__(held.status)
        self.held = held
        self.ending = ending
        self.endpoint = endpoint


class Results:
    """Collects what comes of one request.

    Args:
        partial: an input without a vector does not fail the others.

    Attributes:
        parts: the answers.
        failures: what failed, where it does not fail everything.
    """

    def __init__(self, *, partial: bool) -> None:
        self.partial = partial
        self.parts: list[Part] = []
        self.failures: list[Failures] = []
        self._first: Refused | RefusedUpstream | None = None

    def give_up(self, start: int, stop: int, error: Refused | RefusedUpstream) -> None:
        """The inputs from `start` to `stop` will have no vectors.

        Raises:
            Refused, RefusedUpstream: `error`, where that fails the whole request.
        """
        if not self.partial:
            raise error
        self._first = self._first or error
        if isinstance(error, Refused):
            code, message = error.code, str(error)
        else:
            said = excerpt(b"".join(error.held.pieces))
            code, message = (
                "upstream_error",
                f"{error.endpoint} answered {error.held.status}: {said}",
            )
        self.failures.append(Failures(start, stop, code, message))

    def in_order(self) -> list[Part]:
        """The answers in the order of their inputs; at least one.

        Raises:
            Refused, RefusedUpstream: no input has a vector.
        """
        if not self.parts and self._first is not None:
            raise self._first
        return sorted(self.parts, key=lambda part: part.start)


def takes_part(request: Request) -> bool:
    """Whether the client takes vectors of some inputs where others have none.

    Raises:
        Refused: it does not say so as it should.
    """
    said = request.fields.get(_PARTIAL, b"false").strip().lower()
    if said in _YES or said in _NO:
        return said in _YES
    raise Refused(
        400,
        f"x-forebay-partial is {said[:20].decode('latin-1')!r}; give 'true' or 'false'",
        code="invalid_partial",
        param="x-forebay-partial",
    )


def excerpt(body: bytes) -> str:
    """The beginning of an error's body, on one line."""
    return " ".join(body[:_EXCERPT_BYTES].decode("utf-8", "replace").split())
