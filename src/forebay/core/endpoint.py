"""What the core knows of one endpoint: its limit, its breaker, what runs there."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from forebay.core.model import EngineState, Outcome

if TYPE_CHECKING:
    from forebay.core.breaker import Breaker
    from forebay.core.limits.protocol import Limit
    from forebay.core.model import Decision, Endpoint, Signal
    from forebay.core.room import Member

# Weight of a new reading in the running mean of service times.
_SERVICE_TIME_GAIN = 0.1


@dataclass(slots=True, eq=False, repr=False)
class EndpointState:
    """One endpoint while it runs.

    Args:
        endpoint: what the configuration says of it.
        law: finds its in-flight limit.
        breaker: keeps requests away while it is broken.
    """

    endpoint: Endpoint
    law: Limit
    breaker: Breaker
    native: Member = field(init=False)
    visitor: Member = field(init=False)
    inflight: int = 0
    limit: int = field(init=False)  # of the law, capped while it ramps after an outage
    usable: bool = True
    signal: Signal | None = None
    held_until: float = -inf  # the endpoint asked to be left alone until then
    service_s: float = 0.0  # running mean of how long a request holds its slot

    def __post_init__(self) -> None:
        self.limit = self.law.decision.limit

    def __repr__(self) -> str:
        return f"<EndpointState {self.endpoint.id}: {self.inflight} of {self.limit}>"

    @property
    def members(self) -> tuple[Member, Member]:
        """Its two members: of its own class, and of the other one."""
        return (self.native, self.visitor)

    def look(self, now: float) -> None:
        """Bring `usable` and `limit` up to `now`; both depend on time through the breaker."""
        self.usable = (
            now >= self.held_until and self.engine_serves and self.breaker.admits(now)
        )
        # After an outage the breaker lets the law's limit come back only slowly.
        self.limit = self.breaker.cap(self.native.floor, self.law.decision.limit, now)

    @property
    def waiting(self) -> bool:
        """Whether any request waits that could run here."""
        return self.native.waiting or self.visitor.waiting

    @property
    def engine_serves(self) -> bool:
        """Whether the engine, as far as it says, is awake."""
        return self.signal is None or self.signal.state is EngineState.AWAKE

    def broken(self, now: float) -> bool:
        """Whether requests must be refused at once: waiting would not be short."""
        return not self.engine_serves or not self.breaker.admits(now)

    def served(self, outcome: Outcome, held_s: float) -> None:
        """Remember how long a request held its slot, to estimate waits."""
        if outcome is not Outcome.OK:
            return
        if self.service_s:
            self.service_s += _SERVICE_TIME_GAIN * (held_s - self.service_s)
        else:
            self.service_s = held_s
