"""Whether the endpoints of an embedding model give the same vectors. Arithmetic only.

Vectors of two models cannot be told apart by looking at them, and mixed in one index they make its
answers wrong without an error anywhere. So one text is embedded by each endpoint, and what comes is
compared with the *reference*: the vector that an endpoint of the model itself gave for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import hypot, inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# An endpoint with other vectors is looked at again after so long: it may have been mended.
_RECHECK_S = 60.0


class Likeness(StrEnum):
    """What a comparison came to; also the words that the status has for it."""

    SAME = "same"
    DIFFERENT = "different"
    TRUSTED = "trusted"  # it gives nothing to compare, and may be used nevertheless
    INCOMPARABLE = "incomparable"  # the same, and may not


class Verdict(NamedTuple):
    """What a comparison came to.

    Args:
        likeness: which of the four.
        cosine: of the angle between the two vectors; None if they have not as many dimensions, or
            there is only one.
        reason: in words.
        at: when, seconds.
    """

    likeness: Likeness
    cosine: float | None
    reason: str
    at: float

    @property
    def same(self) -> bool:
        """Whether the endpoint's vectors may be used."""
        return self.likeness in {Likeness.SAME, Likeness.TRUSTED}


class Reference(NamedTuple):
    """What the others are compared with.

    Args:
        endpoint_id: whose it is.
        vector: its embedding of the text that all are asked for.
    """

    endpoint_id: str
    vector: Sequence[float]


@dataclass(slots=True)
class Identity:
    """What is known of the vectors of one model's endpoints.

    Args:
        min_cosine: from which on vectors count as the same model's.

    Attributes:
        reference: what the others are compared with; None: there is none yet.
    """

    min_cosine: float
    reference: Reference | None = field(default=None, init=False)
    _verdicts: dict[str, Verdict] = field(default_factory=dict, init=False)

    def judge(self, endpoint_id: str, vector: Sequence[float], now: float) -> Verdict:
        """Compare an endpoint's vector with the reference; without one, it becomes it."""
        reference = self.reference or Reference(endpoint_id, tuple(vector))
        verdict = self._verdicts[endpoint_id] = self._compared(reference, vector, now)
        if verdict.same:  # to itself, if it is the first: unless it has no direction
            self.reference = reference
        return verdict

    def trust(self, endpoint_id: str, reason: str, now: float) -> Verdict:
        """Let an endpoint be used that cannot be compared."""
        return self._without_vector(endpoint_id, Likeness.TRUSTED, reason, now)

    def reject(self, endpoint_id: str, reason: str, now: float) -> Verdict:
        """Do not let an endpoint be used that cannot be compared."""
        return self._without_vector(endpoint_id, Likeness.INCOMPARABLE, reason, now)

    def last(self, endpoint_id: str) -> Verdict | None:
        """What was found out last, however long ago; None if nothing was, or it was away since."""
        return self._verdicts.get(endpoint_id)

    def verdict(self, endpoint_id: str, now: float) -> Verdict | None:
        """What is known of an endpoint; None if it has to be compared before it is used."""
        verdict = self._verdicts.get(endpoint_id)
        if verdict is None or verdict.same or now < verdict.at + _RECHECK_S:
            return verdict
        return None

    def doubt(self, endpoint_id: str) -> None:
        """Compare an endpoint anew before it is used: it was away, and may be another now."""
        self._verdicts.pop(endpoint_id, None)

    def keep(self, endpoint_ids: Collection[str]) -> None:
        """Forget all other endpoints: at the address of one that is gone may be another."""
        for id_ in self._verdicts.keys() - endpoint_ids:
            self._verdicts.pop(id_, None)  # another thread may have

    def unfit(self, now: float) -> frozenset[str]:
        """Ids of the endpoints that must not be used, as far as that is recent."""
        return frozenset(
            id_
            for id_, verdict in tuple(self._verdicts.items())  # another thread may doubt one
            if not verdict.same and now < verdict.at + _RECHECK_S
        )

    def _without_vector(
        self, endpoint_id: str, likeness: Likeness, reason: str, now: float
    ) -> Verdict:
        verdict = self._verdicts[endpoint_id] = Verdict(likeness, None, reason, now)
        return verdict

    def _compared(self, reference: Reference, vector: Sequence[float], now: float) -> Verdict:
        wanted, given = len(reference.vector), len(vector)
        if given != wanted:
            reason = f"{given} dimensions, and {reference.endpoint_id} has {wanted}"
            return Verdict(Likeness.DIFFERENT, None, reason, now)
        cosine = cosine_of(reference.vector, vector)
        same = cosine >= self.min_cosine
        relation = "at least" if same else "below"
        reason = f"cosine {cosine:.4f} to {reference.endpoint_id}, {relation} {self.min_cosine:g}"
        return Verdict(Likeness.SAME if same else Likeness.DIFFERENT, cosine, reason, now)


def cosine_of(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of the angle between two vectors of the same length; 0 where there is none."""
    lengths = hypot(*one) * hypot(*other)
    if not 0 < lengths < inf:  # nor is it, if there is a value that is no number
        return 0.0
    return max(-1.0, min(1.0, sum(a * b for a, b in zip(one, other, strict=True)) / lengths))
