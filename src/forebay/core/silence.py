"""Whether an endpoint has gone silent: it has requests, and nothing has been heard of it since.

Callers that give up before any time-out of ours must not hide that nobody is answered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.core.model import Outcome

if TYPE_CHECKING:
    from forebay.core.grant import Grant

# What ends like this has heard nothing of the endpoint.
_UNHEARD = frozenset({Outcome.CANCELLED, Outcome.TIMEOUT})


@dataclass(slots=True)
class Silence:
    """What one endpoint lets its callers hear.

    Args:
        since: nothing has been heard of it since then, although something ran there.
        answering: requests that run and have got the first of their answer.
    """

    since: float = field(default=0.0, init=False)
    answering: int = field(default=0, init=False)

    def answered(self, now: float) -> None:
        """Note that a request which still runs has got the first of its answer."""
        self.answering += 1
        self.since = now

    def ended(self, grant: Grant, outcome: Outcome, now: float) -> bool:
        """Fold in how a request ended; returns whether it can tell that nobody is answered."""
        if grant.answered:
            self.answering -= 1
        if outcome not in _UNHEARD:
            self.since = now
            return False
        return not (grant.answered or self.answering) and grant.unanswered
