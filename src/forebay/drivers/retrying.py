"""Second attempts, decided under the lock of the admission that they are made with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from threading import RLock

    from forebay.core.model import Outcome, Ticket
    from forebay.core.retries import Retries
    from forebay.core.retry import RetryBudget


class Retrying:
    """`Retries` for several threads; see there for what its methods do.

    Args:
        retries: decides.
        lock: that of the limiter.
    """

    def __init__(self, retries: Retries, lock: RLock) -> None:
        self._retries = retries
        self._lock = lock

    def note(self, ticket: Ticket) -> None:
        """A request asks for its first slot."""
        with self._lock:
            self._retries.note(ticket)

    def follow(self, budgets: Mapping[str, RetryBudget]) -> None:
        """Go by other endpoints from now on."""
        with self._lock:
            self._retries.follow(budgets)

    def take_one(self, model: str) -> bool:
        """Take one more attempt from a model's budget; False if none is left."""
        with self._lock:
            return self._retries.take_one(model)

    def again(
        self, ticket: Ticket, endpoint_id: str, outcome: Outcome, now: float, *, probe: bool = False
    ) -> Ticket | None:
        """The ticket to ask with for another endpoint; None if the failure is the answer."""
        with self._lock:
            return self._retries.again(ticket, endpoint_id, outcome, now, probe=probe)
