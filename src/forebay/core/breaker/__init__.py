"""The circuit breaker of one endpoint: whether requests may be tried there at all.

`breaker` has the theory of operation; `states` the transitions, `cooldown` how long it stays open,
`probe` the one request that tries an endpoint again, `ramp` how much it takes when it is back.
"""

from forebay.core.breaker.breaker import Breaker, Pass
from forebay.core.breaker.cooldown import Rng
from forebay.core.breaker.ramp import Ramp
from forebay.core.breaker.settings import BreakerSettings
from forebay.core.breaker.states import TRANSITIONS, BreakerSnapshot, BreakerState, Change

__all__ = [
    "TRANSITIONS",
    "Breaker",
    "BreakerSettings",
    "BreakerSnapshot",
    "BreakerState",
    "Change",
    "Pass",
    "Ramp",
    "Rng",
]
