"""One request for embeddings, through admission in pieces that its endpoints take.

Each piece has a slot of its own. How large it is, is decided when its slot, and so its endpoint, is
known; a request is in the queue with one ticket at a time, behind whoever came before. A piece
whose endpoint fails is asked for again at another one. If there is none, the request fails, and its
other pieces are given up.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.core.model import Ending, Outcome, ServiceClass, Ticket
from forebay.errors import Rejected
from forebay.gateway.embeddings import answers
from forebay.gateway.embeddings.held import HeldAnswer, InvalidAnswer, Room
from forebay.gateway.embeddings.remaining import Remaining
from forebay.gateway.exchange import Exchange
from forebay.gateway.failure import Failed, OwnWords
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
_CLIENT_ERROR = Outcome.CLIENT_ERROR
_TOO_LARGE, _SERVER_ERROR = 413, 500


@dataclass(slots=True)
class Part:
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
        self._remaining = Remaining(inputs, in_pieces=service_class is ServiceClass.BEST_EFFORT)
        self._done: list[Part] = []
        self._at_work: list[KnownEndpoint] = []  # one for each piece under way
        self._turn = asyncio.Lock()
        self._room = Room()
        self.queued_s = 0.0

    async def run(self) -> list[Part]:
        """Get all answers, in the inputs' order.

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
        return sorted(self._done, key=lambda part: part.start)

    async def _work(self) -> None:
        while self._remaining:
            await self._step()

    async def _step(self) -> None:
        """Take one slot and use it for one piece."""
        async with self._turn:
            if not self._remaining:
                return
            lease = await self._slot()
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
            affinity=call.affinity,
            avoid=self._remaining.next_avoid,
        )
        if not ticket.avoid:
            deployment.retries.note(ticket)
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
        ending = _CANCELLED  # unless something else turns out
        refused: Refused | None = None
        try:
            known = self._known[lease.endpoint.id]
            piece = self._remaining.take(known, lease.grant.ticket.size_tokens)
            ending = await self._serve(piece, lease)
        except Failed as failed:
            ending, refused = failed.ending, failed.refused
            _log.log(failed.level, "%s: %s", self._call.request_id.decode("latin-1"), refused)
        except RefusedUpstream as upstream:
            ending = upstream.ending
            raise
        finally:
            lease.settle(ending)
            self._deployment.metrics.ended(lease.endpoint, ending)
        if refused is not None and not self._goes_elsewhere(piece, lease, ending.outcome):
            raise refused

    def _goes_elsewhere(self, piece: Piece, failed: Lease, outcome: Outcome) -> bool:
        """Whether a piece that failed is asked for again; nothing of its answer is kept."""
        ticket = self._deployment.retries.again(
            failed.grant.ticket, failed.endpoint.id, outcome, self._call.clock()
        )
        if ticket is None:
            return False
        self._deployment.metrics.retried(ticket, outcome)
        self._remaining.put_back(piece, ticket.avoid)
        return True

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
        held, target = HeldAnswer(self._room), piece.known.target
        body = self._inputs.body(piece.start, piece.stop, as_float=piece.as_float)
        try:
            ending = await Exchange(self._call.part(body, held), target, lease).run()
        except Failed as failed:
            held.drop()  # what there is of it
            # Also a refusal that cannot be passed on, such as a proxy's in HTML: without words.
            refused = failed.refused
            words = refused.words if isinstance(refused, OwnWords) else b""
            if self._asks_again(piece, refused.status, words[:_LOOK_BYTES], failed.ending):
                return failed.ending
            raise
        if not held.ok:
            beginning = b"".join(held.pieces)[:_LOOK_BYTES]
            if self._asks_again(piece, held.status, beginning, ending):
                held.drop()
                return ending
            raise RefusedUpstream(held, ending)
        self._done.append(Part(piece.start, held, self._understood(piece, held)))
        if piece.as_float:
            piece.known.refuses_base64 = True
        return ending

    def _asks_again(self, piece: Piece, status: int, body: bytes, ending: Ending) -> bool:
        own = self._at_work.count(piece.known)
        alone = piece.known.pieces == own and ending.retry_after_s is None
        if status == _SERVER_ERROR and ending.outcome is _CLIENT_ERROR:
            status = _TOO_LARGE  # how llama.cpp and Ollama call an input that is too large
        try:
            return self._remaining.ask_again(piece, status, body, alone=alone)
        except Refused as refused:
            raise Failed(refused, ending) from None

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
            held.drop()
            message = f"{piece.known.target.name} sent no valid answer: {invalid}"
            refused = Refused(502, message, code="upstream_invalid_response")
            raise Failed(refused, _FAILURE) from invalid
        held.drop()  # it may be packed; from here on `answer` is what is kept
        self._room.take(len(content))
        return answer
