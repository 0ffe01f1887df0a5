"""Whether an endpoint is to be left alone for a time: it asked for that, or only ever refuses.

Refusals come at once, so that an endpoint that gives no other answer always looks like the least
loaded of all: after some in a row it rests by itself, while others are there, and longer each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from forebay.core.model import Outcome

if TYPE_CHECKING:
    from forebay.core.breaker import Rng
    from forebay.core.model import Ending

# Who asks to be left alone for longer is stood in for: that is a breaker's first cooldown. Seconds.
_LONG_S = 5.0
# A request that ends like this says that the endpoint needs rest; a time that comes with anything
# else (a wrong key, say) is its caller's business.
_NEEDS_REST = frozenset({Outcome.CONGESTION, Outcome.LOADING, Outcome.FAILURE, Outcome.TIMEOUT})
# Refusals that say nothing of its health.
_REFUSALS = frozenset({Outcome.CONGESTION, Outcome.LOADING, Outcome.CONFIGURATION})
_MOST_REFUSALS = 3
_FIRST_S, _LONGEST_S, _JITTER = 1.0, 10.0, 0.25


@dataclass(slots=True)
class Rest:
    """How one endpoint rests.

    Args:
        until: it is left alone until then.
        refusals: how often it refused since it last answered; of a burst that made it rest, once.
    """

    until: float = field(default=-inf, init=False)
    refusals: int = field(default=0, init=False)

    def is_long(self, now: float) -> bool:
        """Whether there is more of it than is worth waiting for."""
        return self.until - now > _LONG_S

    def answered(self) -> None:
        """Note that it did answer."""
        self.refusals = 0

    def asked(self, ending: Ending, now: float) -> bool:
        """Return whether the end of a request asks for rest; then it has it."""
        if not ending.retry_after_s or ending.outcome not in _NEEDS_REST:
            return False
        self.until = max(self.until, now + ending.retry_after_s)
        return True

    def is_due(self, ending: Ending, started_at: float) -> bool:
        """Return whether the end of a request is one refusal too many."""
        if ending.outcome not in _REFUSALS or ending.retry_after_s is not None:
            return False
        if started_at < self.until:
            return False  # one burst is one reason
        self.refusals += 1
        return self.refusals >= _MOST_REFUSALS

    def take(self, now: float, rng: Rng) -> None:
        """Rest, the longer the more often it has refused."""
        more = self.refusals - _MOST_REFUSALS
        rest_s = min(_FIRST_S * 2.0 ** min(more, 10), _LONGEST_S)
        self.until = max(self.until, now + rest_s * (1 + _JITTER * (2 * rng.random() - 1)))
