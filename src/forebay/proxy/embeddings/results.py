"""What came of the pieces of one request: answers, and inputs that have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay.proxy.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.proxy.embeddings.answers import Answer
    from forebay.proxy.embeddings.held import HeldAnswer
    from forebay.proxy.message import Request

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
        status: of the answer, had it been the only one.
        code: short and stable, for programs.
        message: for people.
    """

    start: int
    stop: int
    status: int
    code: str
    message: str


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
        self._first: Refused | None = None

    def give_up(self, start: int, stop: int, error: Refused) -> None:
        """The inputs from `start` to `stop` will have no vectors.

        Raises:
            Refused: `error`, where that fails the whole request.
        """
        if not self.partial:
            raise error
        self._first = self._first or error
        self.failures.append(Failures(start, stop, error.status, error.code, str(error)))

    def in_order(self) -> list[Part]:
        """The answers in the order of their inputs; at least one.

        Raises:
            Refused: no input has a vector.
        """
        first = self._first
        if not self.parts and first is not None:
            if len(self.failures) == 1:
                raise first
            refused = Refused(first.status, str(first), code=first.code, param=first.param)
            refused.errors = errors_of(self.failures)
            raise refused
        return sorted(self.parts, key=lambda part: part.start)


def errors_of(failures: Sequence[Failures]) -> list[dict[str, Any]]:
    """What a partial answer says of inputs that have no vector, in their order."""
    return [
        {
            "index": index,
            "status": failure.status,
            "code": failure.code,
            "message": failure.message,
        }
        for failure in sorted(failures, key=lambda failure: failure.start)
        for index in range(failure.start, failure.stop)
    ]


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
