"""Who hears of what the core changes by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.breaker import Change
    from forebay.core.model import Decision, Endpoint
    from forebay.core.protection import Guard


class Observer:
    """Hears of changes. Every method may be overridden; none may call back into admission."""

    def limit_changed(self, endpoint: Endpoint, decision: Decision, now: float) -> None:
        """The limit law of `endpoint` moved."""

    def breaker_changed(self, endpoint: Endpoint, change: Change, now: float) -> None:
        """The breaker of `endpoint` went to another state."""

    def share_changed(self, guard: Guard, now: float) -> None:
        """The share of best-effort work on a guarded GPU moved."""
