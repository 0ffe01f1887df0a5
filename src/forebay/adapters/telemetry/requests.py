"""Who hears of every request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.observer import Observer

if TYPE_CHECKING:
    from forebay.core.model import Ending, Endpoint, Outcome, Ticket


class RequestObserver(Observer):
    """Hears of requests, and of what the core changes by itself. Every method may be overridden."""

    def admitted(self, ticket: Ticket, queued_s: float) -> None:
        """A request has got its slot."""

    def rejected(self, ticket: Ticket | None, reason: str) -> None:
        """A request was refused; without a ticket it did not even ask."""

    def retried(self, ticket: Ticket, outcome: Outcome) -> None:
        """A request that ended like this at one endpoint asks for another one."""

    def first_token(self, endpoint: Endpoint, seconds: float) -> None:
        """A stream's first event has come."""

    def ended(self, endpoint: Endpoint, ending: Ending) -> None:
        """An admitted request has ended."""

    def forget(self, endpoint_id: str) -> None:
        """An endpoint is gone."""
