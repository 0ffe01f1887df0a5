"""What is known of an endpoint that embeds: how much it takes at once, and what runs there."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from forebay.adapters.engines.batching import BatchLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.gateway.target import Target


class KnownEndpoint:
    """One endpoint, as its answers and its engine describe it.

    Args:
        target: the endpoint.

    Attributes:
        refuses_base64: it was asked for base64 and only answered when asked for floats.
        pieces: requests for embeddings that it works on now.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.refuses_base64 = False
        self.pieces = 0
        self._told = self._learned = self._limits = BatchLimits()
        self._inputs = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __repr__(self) -> str:
        return f"<KnownEndpoint {self.target.id}: {self._inputs} inputs, {self.limits}>"

    @property
    def limits(self) -> BatchLimits:
        """How much it takes: what its engine tells, and what its refusals told."""
        told = self.target.scraper.batch_limits
        if told is not self._told:  # a new one after every read, and few of those
            self._told = told
            self._limits = _both(told, self._learned)
        return self._limits

    def learn(self, refusal: BatchLimits) -> None:
        """Remember the limits that a refusal told of."""
        self._learned = _both(self._learned, refusal)
        self._limits = _both(self._limits, refusal)

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


def _both(one: BatchLimits, other: BatchLimits) -> BatchLimits:
    """What keeps within both."""
    return BatchLimits(
        max_inputs=_smaller(one.max_inputs, other.max_inputs),
        max_body_bytes=_smaller(one.max_body_bytes, other.max_body_bytes),
        max_inputs_in_flight=_smaller(one.max_inputs_in_flight, other.max_inputs_in_flight),
    )


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)
