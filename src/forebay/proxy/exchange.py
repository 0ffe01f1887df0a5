"""One admitted request: to its endpoint and back, and what that tells of the endpoint.

Theory of operation. Until something worth sending has come, nothing is committed: an endpoint that
fails before its first event gives its client a status, not a broken stream, or nothing at all if
another endpoint is asked. After that bytes are relayed as they arrive. However it ends, `run`
returns an `Ending` or raises; it never does both, and the response upstream is given up in every
case.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.adapters.engines.retry_after import retry_after_s
from forebay.adapters.engines.status import stream_error
from forebay.core.model import Ending, Outcome, Timing, TimingKind
from forebay.core.retries import may_go_elsewhere
from forebay.errors import PoolExhausted, UpstreamError, UpstreamTimeout
from forebay.proxy import failure, headers, tap
from forebay.proxy.failure import Failed
from forebay.proxy.rename import renamed
from forebay.proxy.silence import Silence
from forebay.proxy.tap import BodyTap, StreamTap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from forebay.adapters.upstream import Response
    from forebay.drivers.lease import Lease
    from forebay.proxy.call import Call
    from forebay.proxy.message import Headers
    from forebay.proxy.target import Target

__all__ = ["Exchange", "Failed"]

# Constants of modules: looking an enum's member up costs more than what is done with it.
_OK = Outcome.OK
# Refusals after which it is worth another try.
_TRY_AGAIN = frozenset({Outcome.CONGESTION, Outcome.LOADING})
_FIRST_TOKEN = TimingKind.FIRST_TOKEN
# An error's body is read up to here to understand it, before it is passed on.
_ERROR_BYTES = 256 * 1024
# What is longer is no error: a stream's first event, or the beginning of a body.
_HELD_BYTES = 64 * 1024


class Exchange:
    """One request to one endpoint.

    Args:
        call: the request, its client and its deadline.
        target: the endpoint.
        lease: the slot that the request holds.

    Attributes:
        begun: the answer that the client is to get has come, and some of it may have been sent.
    """

    __slots__ = ("_first_byte_by", "_received", "begun", "call", "lease", "sent_at", "target")

    _received: headers.Received

    def __init__(self, call: Call, target: Target, lease: Lease) -> None:
        self.call = call
        self.target = target
        self.lease = lease
        self.sent_at = self._first_byte_by = 0.0
        self.begun = False

    async def run(self) -> Ending:
        """Do it, and answer the client.

        Raises:
            Failed: the client has not been answered yet, or its stream is cut.
        """
        call, target = self.call, self.target
        request = call.request
        body, query = call.body, request.query
        model = target.endpoint.model
        if model != call.look.model:  # a stand-in that calls it differently
            body, query = renamed(request, body, model)
        sent = headers.to_endpoint(
            request, request_id=call.request_id, authorization=target.authorization
        )
        response = None
        try:
            now = self.sent_at = call.clock()
            most_s = target.first_byte_s or call.settings.first_byte_s
            self._first_byte_by = min(now + min(most_s, self.lease.probe_timeout_s), call.deadline)
            self.lease.grant.unanswered = True
            response = await target.upstream.send(
                request.method,
                target.target_of(request.path, query),
                sent,
                body,
                head_timeout_s=max(0.0, self._first_byte_by - now),
            )
            return await self._relay(response)
        except UpstreamError as error:
            raise failure.no_answer(target, call, error, begun=self.begun) from error
        except PoolExhausted as error:
            self.lease.grant.unanswered = False  # it has not been asked
            call.observer.rejected(None, "gateway_saturated")
            raise failure.saturated(target, error) from error
        finally:
            if response is not None:
                response.abort()

    def _relay(self, response: Response) -> Awaitable[Ending]:
        """The way in which this kind of answer is passed on."""
        received = self._received = headers.Received(response.headers)
        status = response.status
        if status // 100 != 2:  # noqa: PLR2004
            return self._relay_error(response)
        content_type = received.content_type
        if content_type.startswith(b"text/event-stream") and not received.is_encoded:
            return self._relay_stream(response)
        if content_type.startswith(b"text/html"):
            raise self._html(status)
        return self._relay_plain(response)

    # -- streams -------------------------------------------------------------------------------

    async def _relay_stream(self, response: Response) -> Ending:
        call = self.call
        stream = StreamTap(call.clock)
        held = await self._until_first_event(response, stream)
        await call.stop_keepalive()
        responder = call.responder
        responder.event_stream = True
        if not responder.started:
            # Without the endpoint's length: an error event may have to follow.
            sent = headers.without(self._headers_to_client(), b"content-length")
            responder.start(response.status, sent)
        for piece in held:
            await responder.write(piece)
        await self._pass_on(response, stream)
        if stream.unfinished():
            raise failure.broken(self.target, "ended its stream in the middle of a text")
        await responder.end()
        outcome = stream_error(stream.end)
        if outcome is not None:
            return Ending(outcome)
        return Ending(_OK, stream.timings(), work=stream.tokens)

    async def _until_first_event(self, response: Response, stream: StreamTap) -> list[bytes]:
        """Hold the stream's pieces until its first event; see that it is not an error."""
        held: list[bytes] = []
        while True:
            piece = await response.read(self._first_byte_s())
            if not piece:
                raise failure.broken(self.target, "ended its stream without an event")
            held.append(piece)
            beginning = piece if len(held) == 1 else b"".join(held)
            if tap.has_event(beginning) or len(beginning) > _HELD_BYTES:
                break
        outcome = stream_error(beginning)
        if outcome is not None:
            raise failure.error_in_success(self.target, beginning, outcome)
        self._begin()
        stream.first(beginning)
        seconds = stream.first_at - self.sent_at
        self.lease.timing(Timing(_FIRST_TOKEN, seconds, max(1.0, len(self.call.body) / 4)))
        self.call.first_token(self.target, seconds)
        return held

    # -- everything else -----------------------------------------------------------------------

    async def _relay_plain(self, response: Response) -> Ending:
        call = self.call
        first = await response.read(self._first_byte_s())
        if not first.startswith(b"{") and tap.is_html(first):
            raise self._html(response.status)
        outcome = tap.error_alone(first) if len(first) <= _HELD_BYTES else None
        if outcome is not None:
            raise failure.error_in_success(self.target, first, outcome)
        if call.responder.started:  # by a keep-alive comment: a stream was asked for
            raise failure.not_streamed(self.target, call.request.path)
        self._begin()
        if call.keepalive is not None:
            await call.stop_keepalive()
        call.responder.start(response.status, self._headers_to_client())
        last = await self._pass_on_all(response, first)
        seconds = response.completed_at - self.sent_at
        timing = tap.work(seconds, first, last, len(call.body))
        return Ending(_OK, (timing,), None, timing.size)

    async def _relay_error(self, response: Response) -> Ending:
        """Pass an endpoint's refusal on, and understand it."""
        call = self.call
        body = bytearray()
        while len(body) <= _ERROR_BYTES and (piece := await response.read(self._between_s())):
            body += piece
        fields = _text_headers(response)
        outcome = self.target.engine.classify(response.status, fields, bytes(body))
        cap_s = call.settings.retry_after_s
        rest_s = retry_after_s(fields, now=call.wall_clock(), cap_s=cap_s)
        ending = Ending(outcome, retry_after_s=rest_s)
        is_html = fields.get("content-type", "").lower().startswith("text/html")
        is_error = response.status // 100 in {4, 5}
        if is_html or not is_error or call.responder.started:
            raise failure.refused_upstream(self.target, response.status, bytes(body), ending)
        sent = self._headers_to_client()
        if outcome in _TRY_AGAIN and ending.retry_after_s is None:
            sent = [*headers.without(sent, b"retry-after"), (b"retry-after", b"1")]
        if may_go_elsewhere(outcome) and len(body) <= _ERROR_BYTES:
            words = bytes(body)
            raise failure.refused_in_its_words(self.target, response.status, sent, words, ending)
        self._begin()
        await call.stop_keepalive()
        call.responder.start(response.status, sent)
        await self._pass_on_all(response, bytes(body))
        return ending

    async def _pass_on_all(self, response: Response, first: bytes) -> bytes:
        """Pass on the beginning of a body, and what follows; return its last piece."""
        responder = self.call.responder
        if response.exhausted:
            await responder.end(first)
            return first
        rest = BodyTap(self.call.clock)
        await responder.write(first)
        await self._pass_on(response, rest)
        await responder.end()
        return rest.last or first

    async def _pass_on(self, response: Response, read_along: StreamTap | BodyTap) -> None:
        """Pass on the rest of a body, in the very moments in which it arrives."""
        call = self.call
        see, write = read_along.see, call.responder.write

        def take(piece: bytes) -> Awaitable[None]:  # runs 100,000 times a minute when busy
            see(piece)
            return write(piece)

        silence = Silence(
            call.loop,
            response,
            read_along,
            most_s=call.settings.between_chunks_s,
            deadline=call.deadline,
        )
        try:
            while (full := await response.relay(take)) is not None:
                silence.pause()
                async with asyncio.timeout_at(call.deadline):
                    await full
                silence.resume()
        except TimeoutError:
            raise UpstreamTimeout(
                "the client had not read it by the request's deadline", response_started=True
            ) from None
        finally:
            silence.stop()

    def _begin(self) -> None:
        """What came is the answer."""
        self.begun = True
        self.lease.grant.unanswered = False

    # -- what is used above ----------------------------------------------------------------------

    def _headers_to_client(self) -> Headers:
        call, queued_s = self.call, self.lease.queued_s
        own = [
            self.target.header,
            (b"x-forebay-queued-ms", b"%d" % (queued_s * 1000) if queued_s else b"0"),
        ]
        if self.call.attempts > 1:
            own.append((b"x-forebay-attempts", b"%d" % self.call.attempts))
        return self._received.to_client(own, call.request_id, id_was_sent=call.id_was_sent)

    def _first_byte_s(self) -> float:
        return max(0.0, self._first_byte_by - self.call.clock())

    def _between_s(self) -> float:
        """Longest wait for the next piece; with no time left there is none, even if it is here."""
        left = self.call.deadline - self.call.clock()
        if left <= 0:
            raise UpstreamTimeout("the request's deadline is over", response_started=True)
        return min(self.call.settings.between_chunks_s, left)

    def _html(self, status: int) -> Failed:
        return failure.broken(
            self.target, f"answered {status} with an HTML page in place of an API's answer"
        )


def _text_headers(response: Response) -> Mapping[str, str]:
    return {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers}
