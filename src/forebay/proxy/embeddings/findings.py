"""What the log has been told of a model's endpoints: once, however many requests meet it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.core.identity import Likeness

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from forebay.core.identity import Verdict

_log = logging.getLogger(__name__)

NO_REFERENCE = "no regular endpoint of the model has answered since the gateway started"
_WORDS = {
    Likeness.SAME: "has the model's vectors",
    Likeness.DIFFERENT: "has other vectors and is not used",
    Likeness.TRUSTED: "is used, although it cannot be compared",
    Likeness.INCOMPARABLE: "cannot be compared and is not used",
}


class Findings:
    """Logs what is found of the endpoints of one model, when that changes.

    Args:
        model: its id.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._told: dict[str, Hashable] = {}

    def found(self, endpoint_id: str, verdict: Verdict) -> None:
        """A comparison has come to a verdict."""
        likeness, reason = verdict.likeness, verdict.reason
        finding: Hashable = likeness
        if likeness is Likeness.DIFFERENT:  # the last digits of a cosine vary with every batch
            finding = reason if verdict.cosine is None else round(verdict.cosine, 2)
        level = logging.INFO if likeness is Likeness.SAME else logging.WARNING
        self._tell(endpoint_id, finding, level, f"{_WORDS[likeness]}: {reason}")

    def unverified(self, endpoint_id: str, *, used: bool) -> None:
        """A stand-in is used, or not, while there is nothing to compare it with."""
        what = "is used" if used else "is not used"
        text = f"{what}, and was not compared: {NO_REFERENCE}"
        self._tell(endpoint_id, ("unverified", used), logging.WARNING, text)

    def tell_again(self) -> None:
        """Another outage has begun: say once more what is found in it."""
        self._told.clear()

    def keep(self, endpoint_ids: Collection[str]) -> None:
        """Forget all other endpoints."""
        for id_ in self._told.keys() - endpoint_ids:
            self._told.pop(id_, None)  # another thread may have

    def _tell(self, endpoint_id: str, finding: Hashable, level: int, text: str) -> None:
        if self._told.get(endpoint_id) != finding:
            self._told[endpoint_id] = finding
            _log.log(level, "identity model=%s endpoint=%s %s", self._model, endpoint_id, text)
