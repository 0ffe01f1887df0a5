"""What is known of an endpoint that embeds: how much it takes at once, and what runs there."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING

from forebay.adapters.engines.batching import NO_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forebay.adapters.engines.batching import BatchLimits
    from forebay.proxy.target import Target

_log = logging.getLogger(__name__)

# How long a limit is believed that nobody told: memory that was short may be free again.
_FOUND_FOR_S = 600.0


class KnownEndpoint:
    """One endpoint, as its configuration, its engine and its answers describe it.

    What is configured counts in the place of what the engine tells; what refusals told, and what
    was found by cutting batches up, only ever makes it less.

    Args:
        target: the endpoint.
        clock: seconds, monotonic.

    Attributes:
        refuses_base64: it was asked for base64 and only answered when asked for floats.
        pieces: requests for embeddings that it works on now.
    """

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        self.target = target
        self.refuses_base64 = False
        self.pieces = 0
        self._clock = clock
        self._told = self._learned = self._found = NO_LIMITS
        self._limits = target.batch_limits
        self._found_until = inf
        self._inputs = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __repr__(self) -> str:
        return f"<KnownEndpoint {self.target.id}: {self._inputs} inputs, {self.limits}>"

    @property
    def limits(self) -> BatchLimits:
        """How much it takes."""
        told = self.target.scraper.batch_limits
        forgets = self._clock() >= self._found_until
        if forgets:
            self._found, self._found_until = NO_LIMITS, inf
        if forgets or told is not self._told:  # a new one after every read, and few of those
            self._told = told
            self._work_out()
        return self._limits

    def status(self) -> dict[str, int | None]:
        """How much it takes, by the keys of the configuration; None where that is not known."""
        limits = self.limits
        return {
            "max_batch_items": limits.max_inputs,
            "max_batch_tokens": limits.max_tokens,
            "max_batch_bytes": limits.max_body_bytes,
            "max_items_in_flight": limits.max_inputs_in_flight,
        }

    def use(self, target: Target) -> None:
        """Reach it in another way; what is known of it stays."""
        self.target = target
        self._work_out()

    def learn(self, refusal: BatchLimits) -> None:
        """Remember the limits that a refusal told of."""
        self._learned = self._learned.within(refusal)
        self._work_out()

    def find(self, limits: BatchLimits) -> None:
        """Remember for a while what passed, where twice as much did not."""
        self._found = self._found.within(limits)
        self._found_until = self._clock() + _FOUND_FOR_S
        self._work_out()
        _log.warning(
            "%s refused a batch and took its halves; for the next %.0f minutes it gets no larger "
            "ones: %s",
            self.target.name,
            _FOUND_FOR_S / 60,
            limits,
        )

    def _work_out(self) -> None:
        configured = self.target.batch_limits.or_else(self._told)
        self._limits = configured.within(self._learned).within(self._found)

    async def room(self, inputs: int, deadline: float) -> None:
        """Wait, first come first served, until `inputs` more do not exceed what it takes at once.

        A slot is held meanwhile. That cannot lock up: whoever has room here is being served.

        Raises:
            TimeoutError: there was none until `deadline`.
        """
        if self._waiting or not self._fits(inputs):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((inputs, turn))
            try:
                async with asyncio.timeout_at(deadline):
                    await turn
            except (asyncio.CancelledError, TimeoutError):
                if turn.done() and not turn.cancelled():
                    self._inputs -= inputs  # had in the same tick
                self._call_up()
                raise
        else:
            self._inputs += inputs

    @contextmanager
    def working(self, inputs: int) -> Iterator[None]:
        """Hold the room that `room` returned with, and leave it in the end."""
        self.pieces += 1
        try:
            yield
        finally:
            self.pieces -= 1
            self._inputs -= inputs
            self._call_up()

    def _call_up(self) -> None:
        while self._waiting:
            inputs, turn = self._waiting[0]
            if not turn.done():
                if not self._fits(inputs):
                    return
                self._inputs += inputs
                turn.set_result(None)
            self._waiting.popleft()

    def _fits(self, inputs: int) -> bool:
        most = self.limits.max_inputs_in_flight
        return most is None or not self._inputs or self._inputs + inputs <= most
