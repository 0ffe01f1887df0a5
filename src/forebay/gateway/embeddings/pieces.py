"""One request for embeddings, through admission in pieces that its endpoints take.

Each piece has a slot of its own. How large it is, is decided when its slot, and so its endpoint, is
known; a request is in the queue with one ticket at a time, behind whoever came before. If a piece
fails, the request does, and its other pieces are given up.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from forebay.adapters.engines.batching import BatchLimits, limits_from_refusal
from forebay.core.model import Ending, Outcome
from forebay.errors import Rejected
from forebay.gateway.embeddings import answers
from forebay.gateway.embeddings.held import HeldAnswer, InvalidAnswer
from forebay.gateway.exchange import Exchange, Failed
from forebay.gateway.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.core.model import ServiceClass
    from forebay.drivers.aio import Lease
    from forebay.gateway.call import Call
    from forebay.gateway.deployment import Deployment
    from forebay.gateway.embeddings.answers import Answer
    from forebay.gateway.embeddings.inputs import Inputs
    from forebay.gateway.embeddings.known import KnownEndpoint

_log = logging.getLogger(__name__)

_CANCELLED, _FAILURE = Outcome.CANCELLED, Outcome.FAILURE
# Pieces of one request that are worked on at a time.
_OUTSTANDING = 8
# Times that a request is made smaller because an idle server refused it for load.
_MOST_HALVINGS = 8
_LOOK_BYTES = 4096
_BASE64_REFUSED = re.compile(rb"base64|encoding_format", re.IGNORECASE)
_TOO_LARGE, _BUSY = 413, 429

Range = tuple[int, int]


class Part(NamedTuple):
    """What came back for one piece.

    Args:
        start: index of its first input.
        held: the endpoint's answer.
        answer: the same, understood; None if it is everything, and nothing needs to be changed.
    """

    start: int
    held: HeldAnswer
    answer: Answer | None


class RefusedUpstream(Exception):  # noqa: N818 - an endpoint's answer, to be passed on
    """An endpoint's answer that is no success.

    Args:
        held: the answer.
        ending: what it tells of the endpoint.
    """

    def __init__(self, held: HeldAnswer, ending: Ending) -> None:
        super().__init__(held.status)
        self.held = held
        self.ending = ending


class Pieces:
    """Gets the answers to one request. Use it once.

    Args:
        call: the request.
        inputs: what it asks for.
        service_class: in which it asks.
        deployment: the endpoints and their admission.
        known: the model's endpoints by id.

    Attributes:
        queued_s: time that its pieces waited for slots, one after another.
    """

    def __init__(
        self,
        call: Call,
        inputs: Inputs,
        service_class: ServiceClass,
        deployment: Deployment,
        known: Mapping[str, KnownEndpoint],
    ) -> None:
        self._call = call
        self._inputs = inputs
        self._class = service_class
        self._deployment = deployment
        self._known = known
        self._left = deque([(0, len(inputs))])  # what has to be asked for, from start to stop
        self._done: list[Part] = []
        self._running = 0
        self._turn = asyncio.Lock()
        self._most = len(inputs)  # inputs in a piece, after refusals that told no limit
        self._halvings = 0
        self._as_float = False
        self.queued_s = 0.0

    async def run(self) -> list[Part]:
        """Get all answers, in the inputs' order.

        Raises:
            Refused: no slot, or an endpoint that failed.
            RefusedUpstream: an endpoint refused.
        """
        whole = (0, len(self._inputs))
        if all(self._fitting(whole, known) == whole for known in self._known.values()):
            await self._step()  # mostly that is all, and it needs no tasks
        if self._left:
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(min(_OUTSTANDING, len(self._inputs))):
                        tasks.create_task(self._work())
            except ExceptionGroup as group:
                raise group.exceptions[0] from None
        return sorted(self._done, key=lambda part: part.start)

    async def _work(self) -> None:
        while self._left:
            await self._step()

    async def _step(self) -> None:
        """Take one slot and use it for one piece."""
        async with self._turn:
            if not self._left:
                return
            lease = await self._slot()
            if self._halvings:  # a server that has no room for two at a time
                await self._use(lease)
                return
        await self._use(lease)

    async def _slot(self) -> Lease:
        call, deployment = self._call, self._deployment
        assert call.look.model is not None  # noqa: S101 - the proxy has seen to it
        ticket = deployment.limiter.ticket(
            call.look.model,
            self._class,
            timeout_s=call.deadline - call.clock(),
            size_bytes=len(call.body),
        )
        try:
            lease = await deployment.limiter.slot(ticket)
        except Rejected as rejected:
            deployment.metrics.rejected(ticket, rejected.reason)
            raise Refused.of(rejected) from rejected
        deployment.metrics.admitted(ticket, lease.queued_s)
        self.queued_s += lease.queued_s
        return lease

    async def _use(self, lease: Lease) -> None:
        """Have the next piece served, and give the slot back, whatever happens."""
        ending = Ending(_CANCELLED)  # unless something else turns out
        self._running += 1
        try:
            known = self._known[lease.endpoint.id]
            piece = self._take(known)
            ending = await self._serve(piece, known, lease)
        except Failed as failed:
            ending = failed.ending
            _log.warning("%s: %s", self._call.request_id.decode("latin-1"), failed.refused)
            raise failed.refused from failed
        except RefusedUpstream as refused:
            ending = refused.ending
            raise
        finally:
            self._running -= 1
            lease.settle(ending)
            self._deployment.metrics.ended(lease.endpoint, ending)

    async def _serve(self, piece: Range, known: KnownEndpoint, lease: Lease) -> Ending:
        start, stop = piece
        call, held = self._call, HeldAnswer()
        try:
            await known.room(stop - start, call.deadline)
        except TimeoutError:
            message = f"{known.target.name} had no room for the inputs before the deadline"
            raise Failed(Refused(504, message, code="deadline"), Ending(_CANCELLED)) from None
        with known.working(stop - start):
            as_float = self._inputs.encoding == "base64" and (
                self._as_float or known.refuses_base64
            )
            part = call.part(self._inputs.body(start, stop, as_float=as_float), held)
            ending = await Exchange(part, known.target, lease).run()
            if not held.ok:
                self._refused(piece, held, known, ending)
                return ending
        if as_float:
            known.refuses_base64 = True
        try:
            self._done.append(Part(start, held, self._understood(piece, held)))
        except InvalidAnswer as invalid:
            message = f"{known.target.name} sent no valid answer: {invalid}"
            refused = Refused(502, message, code="upstream_invalid_response")
            raise Failed(refused, Ending(_FAILURE)) from invalid
        return ending

    def _understood(self, piece: Range, held: HeldAnswer) -> Answer | None:
        inputs, encoding = piece[1] - piece[0], self._inputs.encoding
        content = held.content()
        if inputs == len(self._inputs) and answers.needs_nothing(content, inputs, encoding):
            return None
        return answers.read(content, inputs, encoding)

    # -- how large a piece is ------------------------------------------------------------------

    def _take(self, known: KnownEndpoint) -> Range:
        """Take as much of what is left as the endpoint takes."""
        left = self._left.popleft()
        start, stop = self._fitting(left, known)
        if stop < left[1]:
            self._left.appendleft((stop, left[1]))
        return start, stop

    def _fitting(self, left: Range, known: KnownEndpoint) -> Range:
        """The part of `left` that fits into one request; always at least one input."""
        start, stop = left
        limits = known.limits
        for most in (self._most, limits.max_inputs, limits.max_inputs_in_flight):
            if most is not None:
                stop = min(stop, start + most)
        most_bytes = limits.max_body_bytes
        if most_bytes is not None and len(self._inputs.request) > most_bytes:
            stop = self._inputs.until(start, stop, most_bytes)
        return start, max(stop, start + 1)

    # -- refusals ------------------------------------------------------------------------------

    def _refused(
        self, piece: Range, held: HeldAnswer, known: KnownEndpoint, ending: Ending
    ) -> None:
        """Put the piece back to be asked for in another way, if there is one.

        Raises:
            Failed: its one input is too large.
            RefusedUpstream: there is none.
        """
        body = b"".join(held.pieces)[:_LOOK_BYTES]
        limits = limits_from_refusal(held.status, body)
        if held.status == _TOO_LARGE or limits != BatchLimits():
            self._too_large(piece, known, limits, ending)
        elif self._is_base64_refused(held, body):
            self._as_float = True
        elif self._is_overload_by_itself(piece, held, known, ending):
            self._halvings += 1
            self._most = (piece[1] - piece[0]) // 2
        else:
            raise RefusedUpstream(held, ending)
        self._left.appendleft(piece)

    def _too_large(
        self, piece: Range, known: KnownEndpoint, limits: BatchLimits, ending: Ending
    ) -> None:
        start, stop = piece
        if stop - start == 1:
            message = f"input[{start}] is too large for {known.target.name}"
            refused = Refused(_TOO_LARGE, message, code="input_too_large", param="input")
            raise Failed(refused, ending)
        known.learn(limits)
        if self._fitting(piece, known) == piece:  # that was not what it refused
            self._most = min(self._most, (stop - start) // 2)

    def _is_base64_refused(self, held: HeldAnswer, body: bytes) -> bool:
        return (
            held.status in {400, 422}
            and self._inputs.encoding == "base64"
            and not self._as_float
            and _BASE64_REFUSED.search(body) is not None
        )

    def _is_overload_by_itself(
        self, piece: Range, held: HeldAnswer, known: KnownEndpoint, ending: Ending
    ) -> bool:
        """Whether a server that does nothing else has not got the room for this piece.

        TEI counts inputs, and refuses a batch of more than it has room for, however idle it is.
        """
        return (
            held.status == _BUSY
            and ending.retry_after_s is None
            and piece[1] - piece[0] > 1
            and known.pieces == self._running
            and self._halvings < _MOST_HALVINGS
        )
