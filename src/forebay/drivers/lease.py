"""A slot in the hands of whoever runs a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.admission import Grant
    from forebay.core.model import Ending, Endpoint, Timing
    from forebay.drivers.limiter import Limiter


class Lease:
    """A slot at `endpoint` that is held until `settle`, which only ever counts once."""

    __slots__ = ("_limiter", "endpoint", "grant", "queued_s", "settled")

    def __init__(self, limiter: Limiter, grant: Grant, queued_s: float = 0.0) -> None:
        self._limiter = limiter
        self.grant = grant
        self.endpoint: Endpoint = grant.endpoint
        self.queued_s = queued_s
        self.settled = False

    def __repr__(self) -> str:
        state = "settled" if self.settled else "held"
        return f"<Lease of {self.endpoint.id} {state}>"

    @property
    def is_probe(self) -> bool:
        """Whether this request tries an endpoint that was broken."""
        return self.grant.pass_.probe

    @property
    def probe_timeout_s(self) -> float:
        """How long a probe may go without an answer, seconds; infinity for other requests."""
        return self.grant.pass_.timeout_s

    def timing(self, timing: Timing) -> None:
        """Report a reading while the request still runs, e.g. its first token."""
        self._limiter.report(self, timing)

    def settle(self, ending: Ending) -> None:
        """Give the slot back. Every call but the first does nothing."""
        if not self.settled:
            self._limiter.give_back(self, ending)
