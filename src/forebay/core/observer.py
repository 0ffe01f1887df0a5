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

    def stand_in_changed(self, model: str, now: float, *, serves: bool) -> None:
        """The stand-ins of `model` serve it from now on, or its regular endpoints do again."""


class Observers(Observer):
    """Tells several observers.

    Args:
        observers: each of them, in this order.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def limit_changed(self, endpoint: Endpoint, decision: Decision, now: float) -> None:
        """Tell all of them."""
        for observer in self._observers:
            observer.limit_changed(endpoint, decision, now)

    def breaker_changed(self, endpoint: Endpoint, change: Change, now: float) -> None:
        """Tell all of them."""
        for observer in self._observers:
            observer.breaker_changed(endpoint, change, now)

    def share_changed(self, guard: Guard, now: float) -> None:
        """Tell all of them."""
        for observer in self._observers:
            observer.share_changed(guard, now)

    def stand_in_changed(self, model: str, now: float, *, serves: bool) -> None:
        """Tell all of them."""
        for observer in self._observers:
            observer.stand_in_changed(model, now, serves=serves)
