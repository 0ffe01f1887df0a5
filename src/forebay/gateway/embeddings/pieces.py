"""One request for embeddings, through admission in pieces that its endpoints take.

Each piece has a slot of its own. How large it is, is decided when its slot, and so its endpoint, is
known; a request is in the queue with one ticket at a time, behind whoever came before. If a piece
fails for good (see `inquiry`), the request does, and its other pieces are given up; unless the
client takes what there is.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from forebay.core.model import Ending, Outcome, ServiceClass, Ticket
from forebay.errors import Rejected
from forebay.gateway.embeddings import answers
from forebay.gateway.embeddings.held import HeldAnswer, InvalidAnswer, Room
from forebay.gateway.embeddings.inquiry import Inquiry, Refusal
from forebay.gateway.embeddings.remaining import Remaining
from forebay.gateway.embeddings.results import Part, RefusedUpstream, Results, takes_part
from forebay.gateway.exchange import Exchange
from forebay.gateway.failure import Failed
from forebay.gateway.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.drivers.aio import Lease
    from forebay.gateway.call import Call
    from forebay.gateway.deployment import Deployment
    from forebay.gateway.embeddings.answers import Answer
    from forebay.gateway.embeddings.inputs import Inputs
    from forebay.gateway.embeddings.known import KnownEndpoint
    from forebay.gateway.embeddings.remaining import Piece

_log = logging.getLogger(__name__)

_CANCELLED, _FAILURE = Ending(Outcome.CANCELLED), Ending(Outcome.FAILURE)
# Pieces of one request that are worked on at a time.
_OUTSTANDING = 8
_LOOK_BYTES = 4096
_OK = Outcome.OK


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
        self._remaining = Remaining(inputs, in_pieces=service_class is ServiceClass.BEST_EFFORT)
        self._results = Results(partial=takes_part(call.request))
        self._at_work: list[KnownEndpoint] = []  # one for each piece under way
        self._turn = asyncio.Lock()
        self._room = Room()
        self._inquiry = Inquiry(call, self._remaining, self._room)
        self.queued_s = 0.0

    async def run(self) -> Results:
        """Get all answers.

        Raises:
            Refused: no slot, or an endpoint that failed.
            RefusedUpstream: an endpoint refused.
        """
        if all(map(self._remaining.is_one_piece, self._known.values())):
            await self._step()  # mostly that is all, and it needs no tasks
        if self._remaining:
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(min(_OUTSTANDING, len(self._inputs))):
                        tasks.create_task(self._work())
            except ExceptionGroup as group:
                raise group.exceptions[0] from None
        return self._results

    async def _work(self) -> None:
        while self._remaining:
            await self._step()

    async def _step(self) -> None:
        """Take one slot and use it for one piece."""
        async with self._turn:
            if not self._remaining:
                return
            try:
                lease = await self._slot()
            except Refused as refused:
                for start, stop in self._remaining.give_up():
                    self._results.give_up(start, stop, refused)
                return
            if self._remaining.one_at_a_time:
                await self._use(lease)
                return
        await self._use(lease)

    async def _slot(self) -> Lease:
        call, deployment = self._call, self._deployment
        assert call.look.model is not None  # noqa: S101 - the proxy has seen to it
        ticket = Ticket(
            call.look.model,
            self._class,
            call.clock(),
            call.deadline,
            size_bytes=len(call.body),
            size_tokens=self._remaining.next_tokens(self._known.values()),
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
        ending = told = _CANCELLED  # unless something else turns out
        error: Refused | RefusedUpstream | None = None
        try:
            known = self._known[lease.endpoint.id]
            piece = self._remaining.take(known, lease.grant.ticket.size_tokens)
            ending = told = await self._serve(piece, lease)
            if piece.after_failure and ending.outcome is _OK:
                told = _CANCELLED  # the whole that this is a half of has told of the endpoint
        except Failed as failed:
            ending, error = failed.ending, failed.refused
            _log.warning("%s: %s", self._call.request_id.decode("latin-1"), error)
        except RefusedUpstream as refused:
            ending, error = refused.ending, refused
        finally:
            lease.settle(told if error is None else ending)
            self._deployment.metrics.ended(lease.endpoint, ending)
        if error is not None:
            self._results.give_up(piece.start, piece.stop, error)

    async def _serve(self, piece: Piece, lease: Lease) -> Ending:
        """Wait until the endpoint has room for the piece, and have it served."""
        known = piece.known
        try:
            await known.room(piece.inputs, self._call.deadline)
        except TimeoutError:
            message = f"{known.target.name} had no room for the inputs before the deadline"
            raise Failed(Refused(504, message, code="deadline"), _CANCELLED) from None
        self._at_work.append(known)
        try:
            with known.working(piece.inputs):
                return await self._exchange(piece, lease)
        finally:
            self._at_work.remove(known)

    async def _exchange(self, piece: Piece, lease: Lease) -> Ending:
        held, known = HeldAnswer(self._room), piece.known
        body = self._inputs.body(piece.start, piece.stop, as_float=piece.as_float)
        error: Failed | RefusedUpstream
        try:
            ending = await Exchange(self._call.part(body, held), known.target, lease).run()
        except Failed as failed:
            # A refusal that cannot be passed on, such as a proxy's in HTML.
            error, status, said = failed, failed.refused.status, b""
        else:
            if held.ok:
                self._results.parts.append(Part(piece.start, held, self._understood(piece, held)))
                self._inquiry.passed(piece)
                known.refuses_base64 |= piece.as_float
                return ending
            error = RefusedUpstream(held, ending, known.target.name)
            status, said = held.status, b"".join(held.pieces)[:_LOOK_BYTES]
        alone = known.pieces == self._at_work.count(known)
        refusal = Refusal(status, said, error.ending, alone)
        again = await self._inquiry.asks_again(piece, refusal, lease)
        if again is None:
            raise error
        held.drop()
        return again

    def _understood(self, piece: Piece, held: HeldAnswer) -> Answer | None:
        encoding = self._inputs.encoding
        try:
            content = held.content()
            if piece.inputs == len(self._inputs) and answers.needs_nothing(
                content, piece.inputs, encoding
            ):
                return None
            answer = answers.read(content, piece.inputs, encoding)
        except InvalidAnswer as invalid:
            message = f"{piece.known.target.name} sent no valid answer: {invalid}"
            refused = Refused(502, message, code="upstream_invalid_response")
            raise Failed(refused, _FAILURE) from invalid
        held.drop()  # it may be packed; from here on `answer` is what is kept
        self._room.take(len(content))
        return answer
