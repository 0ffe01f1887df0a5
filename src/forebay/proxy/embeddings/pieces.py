"""One request for embeddings, through admission in pieces that its endpoints take.

Each piece has a slot of its own. How large it is, is decided when its slot, and so its endpoint, is
known; a request is in the queue with one ticket at a time, behind whoever came before. A piece
that is refused may come again, in another way (see `inquiry`); one whose endpoint fails is asked
for at another one. If there is none, the request fails, and its other pieces are given up; unless
the client takes what there is.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from forebay.core.model import Ending, Outcome, ServiceClass, Ticket
from forebay.errors import Rejected
from forebay.proxy.embeddings import answers
from forebay.proxy.embeddings.held import HeldAnswer, InvalidAnswer, Room
from forebay.proxy.embeddings.inquiry import InputFailed, Inquiry, Refusal
from forebay.proxy.embeddings.piece import Attempts
from forebay.proxy.embeddings.remaining import Remaining
from forebay.proxy.embeddings.results import Part, Results, takes_part
from forebay.proxy.exchange import Exchange
from forebay.proxy.failure import Failed, OwnWords, refused_in_its_words
from forebay.proxy.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.drivers.lease import Lease
    from forebay.proxy.call import Call
    from forebay.proxy.deployment import Deployment
    from forebay.proxy.embeddings.answers import Answer
    from forebay.proxy.embeddings.guard import ModelGuard
    from forebay.proxy.embeddings.inputs import Inputs
    from forebay.proxy.embeddings.known import KnownEndpoint
    from forebay.proxy.embeddings.piece import Piece

_log = logging.getLogger(__name__)

_CANCELLED, _FAILURE = Ending(Outcome.CANCELLED), Ending(Outcome.FAILURE)
# Pieces of one request that are worked on at a time.
_OUTSTANDING = 8
_LOOK_BYTES = 4096
_OK = Outcome.OK
_NOWHERE: frozenset[str] = frozenset()


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
        assert call.look.model is not None  # noqa: S101 - the proxy has seen to it
        self._model = call.look.model
        self._remaining = Remaining(inputs, in_pieces=service_class is ServiceClass.BEST_EFFORT)
        self._results = Results(partial=takes_part(call.request))
        self._at_work: list[KnownEndpoint] = []  # one for each piece under way
        self._turn = asyncio.Lock()
        self._room = Room()
        once_more = partial(deployment.retries.take_one, self._model)
        self._inquiry = Inquiry(call, self._remaining, self._room, once_more)
        self.queued_s = 0.0

    async def run(self) -> Results:
        """Get all answers.

        Raises:
            Refused: no slot, or an endpoint that refused or failed.
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
                for left in self._remaining.give_up():
                    # Why the first attempt failed is what the client should know.
                    self._results.give_up(left.start, left.stop, left.attempts.refused or refused)
                return
            if self._remaining.one_at_a_time:
                await self._use(lease)
                return
        await self._use(lease)

    async def _slot(self) -> Lease:
        call, deployment = self._call, self._deployment
        attempts = self._remaining.next_attempts
        ticket = Ticket(
            self._model,
            self._class,
            call.clock(),
            call.deadline,
            size_bytes=len(call.body),
            size_tokens=self._remaining.next_tokens(self._known.values()),
            affinity=call.affinity,
            avoid=attempts.avoid | self._unfit,
            attempt=attempts.made + 1,
        )
        if not attempts.made:
            deployment.retries.note(ticket)
        try:
            lease = await deployment.limiter.slot(ticket)
        except Rejected as rejected:
            deployment.observer.rejected(ticket, rejected.reason)
            raise Refused.of(rejected) from rejected
        deployment.observer.admitted(ticket, lease.queued_s)
        self.queued_s += lease.queued_s
        return lease

    @property
    def _guard(self) -> ModelGuard | None:
        """There may be one by the next piece: endpoints come and go."""
        return self._deployment.identity.of(self._model)

    @property
    def _unfit(self) -> frozenset[str]:
        """Endpoints that would not give the model's vectors."""
        guard = self._guard
        return guard.unfit if guard is not None else _NOWHERE

    async def _use(self, lease: Lease) -> None:
        """Have the next piece served, and give the slot back, whatever happens."""
        ending = told = _CANCELLED  # unless something else turns out
        failed: Failed | None = None
        try:
            known = self._known[lease.endpoint.id]
            piece = self._remaining.take(known, lease.grant.ticket.size_tokens)
            ending = told = await self._serve(piece, lease)
            if piece.after_failure and ending.outcome is _OK:
                told = _CANCELLED  # the whole that this is a half of has told of the endpoint
        except Failed as error:
            ending, told, failed = error.ending, error.ending, error
            _log.log(error.level, "%s: %s", self._call.request_id.decode("latin-1"), error)
        finally:
            lease.settle(told)
            self._deployment.observer.ended(lease.endpoint, ending)
        if failed is not None and not self._goes_elsewhere(piece, failed, lease):
            self._results.give_up(piece.start, piece.stop, failed.refused)

    def _goes_elsewhere(self, piece: Piece, failed: Failed, lease: Lease) -> bool:
        """Whether a piece that failed is asked for again; nothing of its answer is kept."""
        outcome = _FAILURE.outcome if isinstance(failed, InputFailed) else failed.ending.outcome
        # Its ticket may have been another piece's: see `Remaining.take`.
        attempts, id_ = piece.attempts, lease.endpoint.id
        unfit = self._unfit - attempts.avoid - {id_}
        avoid, attempt = attempts.avoid | unfit, attempts.made + 1
        before = replace(lease.grant.ticket, avoid=avoid, attempt=attempt)
        ticket = self._deployment.retries.again(
            before, id_, outcome, self._call.clock(), probe=lease.is_probe
        )
        if ticket is None:
            return False
        self._deployment.observer.retried(ticket, outcome)
        # Who is unfit now may be fit by then.
        self._remaining.put_back(piece, Attempts(ticket.avoid - unfit, failed.refused, attempt))
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
                guard = self._guard
                if guard is not None:
                    await guard.check(self._call, known.target, lease)
                return await self._exchange(piece, lease)
        finally:
            self._at_work.remove(known)

    async def _exchange(self, piece: Piece, lease: Lease) -> Ending:
        held, known = HeldAnswer(self._room), piece.known
        body = self._inputs.body(piece.start, piece.stop, as_float=piece.as_float)
        part = self._call.part(body, held, attempts=piece.attempts.made + 1)
        try:
            ending = await Exchange(part, known.target, lease).run()
            if held.ok:
                self._results.parts.append(Part(piece.start, held, self._understood(piece, held)))
                self._inquiry.passed(piece)
                known.refuses_base64 |= piece.as_float
                return ending
            words = b"".join(held.pieces)
            raise refused_in_its_words(known.target, held.status, held.headers, words, ending)
        except Failed as failed:
            held.drop()
            again = await self._inquiry.asks_again(piece, self._refusal(failed, known), lease)
            if again is None:
                raise
            return again

    def _refusal(self, failed: Failed, known: KnownEndpoint) -> Refusal:
        refused = failed.refused
        # Without words: one that cannot be passed on, such as a proxy's in HTML.
        said = refused.words[:_LOOK_BYTES] if isinstance(refused, OwnWords) else b""
        alone = known.pieces == self._at_work.count(known)
        return Refusal(refused.status, said, failed.ending, alone)

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
