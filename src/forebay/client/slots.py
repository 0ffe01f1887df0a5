"""How a session's slots are asked for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import ceil, isfinite
from typing import TYPE_CHECKING, Literal, NamedTuple

from forebay.client.lease import Lease
from forebay.core.model import Reason, ServiceClass, Ticket
from forebay.errors import Rejected

if TYPE_CHECKING:
    from forebay.client.holders import Holders
    from forebay.client.home import Home
    from forebay.drivers.lease import Lease as Slot
    from forebay.proxy.deployment import Deployment

Priority = Literal["best-effort"]


class Asked(NamedTuple):
    """What a slot is for; see `Session.slot`."""

    model: str
    timeout_s: float | None = None
    priority: Priority | None = None
    tokens: float | None = None
    weight: int | None = None


class Slots:
    """The slots of a session, for those who ask by its rules.

    Args:
        deployment: the endpoints and their admission.
        holders: which task holds which slot.
        home: where the session was opened.
    """

    def __init__(self, deployment: Deployment, holders: Holders, home: Home) -> None:
        self._deployment = deployment
        self._limiter = deployment.limiter
        self._retries = deployment.retries
        self._holders = holders
        self._home = home

    def ticket(self, asked: Asked) -> Ticket:
        """Ask for a slot, from now on.

        Raises:
            Rejected: there is no such model.
            ValueError: what is asked for makes no sense.
            UsageError: the session is closed, or this is a forked child.
        """
        self._home.check()
        model, timeout_s = asked.model, asked.timeout_s
        with self._limiter.lock:  # another plan comes into force under it
            models = self._deployment.plan.models
            if model not in models:
                known = ", ".join(sorted(models))
                raise Rejected(
                    Reason.UNKNOWN_MODEL, f"no model {model!r} is configured; known: {known}"
                )
            service_class = self._deployment.service_class(model)
        if asked.priority is not None:
            if asked.priority != "best-effort":
                raise ValueError(f"priority is {asked.priority!r}; it can be 'best-effort' or None")
            service_class = ServiceClass.BEST_EFFORT
        if timeout_s is None:
            timeout_s = self._deployment.settings.timeouts.request_s
        if not (isinstance(timeout_s, int | float) and timeout_s > 0):
            raise ValueError(f"timeout is {timeout_s!r}; it must be above 0 (try_slot never waits)")
        now = self._limiter.now()
        return Ticket(
            model,
            service_class,
            now,
            now + timeout_s,
            weight=_weight(asked.weight, asked.tokens),
            size_tokens=_whole(asked.tokens),
        )

    def check(self, asked: Asked) -> None:
        """See that whoever runs this could get such slots at all.

        Raises:
            Rejected: see `ticket`.
            ValueError: see `ticket`.
            UsageError: see `ticket`; or waiting would never end.
        """
        with self._holders.asking(self.ticket(asked)):
            pass

    def try_take(self, ticket: Ticket) -> Lease | None:
        """Take a slot if one is free at once."""
        slot = self._limiter.try_slot(ticket)
        return None if slot is None else self._leased(slot)

    async def take(self, ticket: Ticket) -> Lease:
        """Wait for a slot."""
        with self._holders.asking(ticket):
            slot = await self._limiter.slot(ticket)
        return self._leased(slot)

    def take_sync(self, ticket: Ticket) -> Lease:
        """Wait for a slot, and block this thread."""
        with self._holders.asking(ticket):
            slot = self._limiter.slot_sync(ticket)
        return self._leased(slot)

    async def take_for_bulk(self, ticket: Ticket) -> Lease:
        """Wait for a slot, also where one is told to come back later; see `take_elsewhere`."""
        self._retries.note(ticket)
        return await self._take_patiently(ticket)

    async def take_elsewhere(self, failed: Lease) -> Lease | None:
        """Wait for a slot at another endpoint, if that one's failure is a reason to.

        Args:
            failed: given back; it came from `take_for_bulk` or from here.
        """
        before, outcome = failed.ticket, failed.outcome
        if outcome is None:
            return None
        # It bounds the wait for a slot, not what was done in it, so it begins again.
        now = self._limiter.now()
        before = replace(before, deadline=now + (before.deadline - before.asked_at))
        ticket = self._retries.again(
            before, failed.endpoint.id, outcome, now, probe=failed.is_probe
        )
        if ticket is None:
            return None
        try:
            return await self._take_patiently(ticket)
        except Rejected:
            return None  # why the first attempt failed is what the caller should know

    async def _take_patiently(self, ticket: Ticket) -> Lease:
        limiter = self._limiter
        while True:
            try:
                return await self.take(ticket)
            except Rejected as error:
                left_s = ticket.deadline - limiter.now()
                wait_s = error.retry_after_s
                if wait_s is None or wait_s >= left_s or error.reason == Reason.SHUTTING_DOWN:
                    raise
                await asyncio.sleep(wait_s)

    def _leased(self, slot: Slot) -> Lease:
        longest_rest_s = self._deployment.settings.timeouts.retry_after_s
        scraper = self._deployment.targets[slot.endpoint.id].scraper
        return Lease(slot, self._limiter, scraper, self._holders, self._home, longest_rest_s)


def _weight(weight: int | None, tokens: float | None) -> int:
    if weight is None:
        return 0
    if tokens is not None:
        raise ValueError("give tokens or weight, not both: a weight counts whatever the size")
    if not (isinstance(weight, int) and weight >= 1):
        raise ValueError(f"weight is {weight!r}; give a number of slots from 1 on")
    return weight


def _whole(tokens: float | None) -> int:
    if tokens is None:
        return 0
    if not (isfinite(tokens) and tokens >= 0):
        raise ValueError(f"tokens is {tokens}; it must be a number from 0 on")
    return ceil(tokens)
