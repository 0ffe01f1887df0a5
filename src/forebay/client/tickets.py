"""What the library asks admission for: a ticket, from what its caller says."""

from __future__ import annotations

from math import ceil, isfinite
from typing import TYPE_CHECKING, Literal

from forebay.core.model import Reason, ServiceClass, Ticket
from forebay.errors import Rejected

if TYPE_CHECKING:
    from forebay.client.home import Home
    from forebay.drivers.aio import AsyncLimiter
    from forebay.live import Live

Priority = Literal["best-effort"]


class Tickets:
    """Makes a session's tickets.

    Args:
        live: what is configured now.
        limiter: knows the time.
        home: where the session may be used.
    """

    def __init__(self, live: Live, limiter: AsyncLimiter, home: Home) -> None:
        self._live = live
        self._limiter = limiter
        self._home = home

    def make(
        self,
        model: str,
        timeout_s: float | None,
        priority: Priority | None,
        *,
        tokens: float | None = None,
        weight: int | None = None,
    ) -> Ticket:
        """Make a ticket; for the arguments see `Session.slot`.

        Raises:
            Rejected: the model is not configured.
            UsageError: not where the session was opened.
            ValueError: an argument makes no sense.
        """
        self._home.check()
        plan = self._live.plan
        if model not in plan.models:
            known = ", ".join(sorted(plan.models))
            raise Rejected(
                Reason.UNKNOWN_MODEL, f"no model {model!r} is configured; known: {known}"
            )
        service_class = self._live.service_class(model)
        if priority is not None:
            if priority != "best-effort":
                raise ValueError(f"priority is {priority!r}; it can be 'best-effort' or None")
            service_class = ServiceClass.BEST_EFFORT
        if timeout_s is None:
            timeout_s = plan.config.forebay.timeouts.request_s
        if not timeout_s > 0:
            raise ValueError(f"timeout is {timeout_s}; it must be above 0 (try_slot never waits)")
        now = self._limiter.now()
        return Ticket(
            model,
            service_class,
            now,
            now + timeout_s,
            weight=_slots(weight, tokens),
            size_tokens=_whole(tokens),
        )


def _slots(weight: int | None, tokens: float | None) -> int:
    if weight is None:
        return 0
    if tokens is not None:
        raise ValueError("give tokens or weight, not both: a weight counts whatever the size")
    if weight < 1:
        raise ValueError(f"weight is {weight}; a request takes at least one slot")
    return weight


def _whole(tokens: float | None) -> int:
    if tokens is None:
        return 0
    if not (isfinite(tokens) and tokens >= 0):
        raise ValueError(f"tokens is {tokens}; it must be a number from 0 on")
    return ceil(tokens)
