"""One admitted request: to its endpoint and back, and what that tells of the endpoint.

Theory of operation. Until something worth sending has come, nothing is committed: an endpoint that
fails before its first event gives its client a status, not a broken stream. After that bytes are
relayed as they arrive. However it ends, `run` returns an `Ending` or raises; it never does both,
and the response upstream is given up in every case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.adapters.engines.retry_after import retry_after_s
from forebay.adapters.engines.status import classify_error, hint, stream_error
from forebay.core.model import Ending, Outcome, Timing, TimingKind
from forebay.errors import PoolExhausted, UpstreamError, UpstreamTimeout
from forebay.gateway import headers, tap
from forebay.gateway.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.upstream import Response
    from forebay.drivers.aio import Lease
    from forebay.gateway.call import Call
    from forebay.gateway.target import Target

# Constants of modules: looking an enum's member up costs more than what is done with it.
_OK, _FAILURE, _TIMEOUT, _CANCELLED = (
    Outcome.OK,
    Outcome.FAILURE,
    Outcome.TIMEOUT,
    Outcome.CANCELLED,
)
_FIRST_TOKEN = TimingKind.FIRST_TOKEN
# An error's body is read whole to understand it, up to here.
_ERROR_BYTES = 256 * 1024
# A stream whose first event is longer is relayed without looking at it further.
_HELD_BYTES = 64 * 1024
_BAD_GATEWAY, _GATEWAY_TIMEOUT = 502, 504
_LAST_STATUS = 599


class Exchange:
    """One request to one endpoint.

    Args:
        call: the request, its client and its deadline.
        target: the endpoint.
        lease: the slot that the request holds.
    """

    __slots__ = ("call", "lease", "sent_at", "tap", "target")

    def __init__(self, call: Call, target: Target, lease: Lease) -> None:
        self.call = call
        self.target = target
        self.lease = lease
        self.sent_at = 0.0
        self.tap = tap.StreamTap(call.clock)

    async def run(self) -> Ending:
        """Do it, and answer the client.

        Raises:
            Failed: the client has not been answered yet, or its stream is cut.
        """
        response = None
        try:
            response = await self._send()
            return await self._relay(response)
        except UpstreamError as error:
            raise self._failed(error) from error
        except PoolExhausted as error:
            message = f"the gateway has no connection left for {self.target.name}"
            refused = Refused(503, message, code="gateway_saturated", retry_after_s=1)
            raise Failed(refused, Ending(_CANCELLED)) from error
        finally:
            if response is not None:
                response.abort()

    async def _send(self) -> Response:
        call, target = self.call, self.target
        request = call.request
        self.sent_at = call.clock()
        return await target.upstream.send(
            call.method,
            target.target_of(request.path, request.query),
            headers.to_endpoint(
                request.headers,
                request_id=call.request_id,
                authorization=target.authorization,
                identity_body=call.body is not request.body,
            ),
            call.body,
            head_timeout_s=self._first_byte_s(),
        )

    async def _relay(self, response: Response) -> Ending:
        status = response.status
        if status // 100 != 2 or status > _LAST_STATUS:  # noqa: PLR2004
            return await self._relay_error(response)
        content_type = _header(response, b"content-type").lower()
        if content_type.startswith(b"text/event-stream"):
            return await self._relay_stream(response)
        if content_type.startswith(b"text/html"):
            raise self._html(status)
        if self.call.responder.started:  # by a keep-alive comment: a stream was asked for
            message = f"{self.target.name} answered a streaming request without a stream"
            raise Failed(_bad_gateway(message), Ending(_FAILURE))
        return await self._relay_plain(response)

    # -- streams -------------------------------------------------------------------------------

    async def _relay_stream(self, response: Response) -> Ending:
        call = self.call
        held = await self._until_first_event(response)
        await call.stop_keepalive()
        responder, stream = call.responder, self.tap
        responder.event_stream = True
        if not responder.started:
            own = call.own_headers(self.target.id, self.lease.queued_s)
            await responder.start(response.status, headers.to_client(response.headers, own))
        for piece in held:
            await responder.write(piece)
        clock, read, write, see = call.clock, response.read, responder.write, stream.see
        silence_s, deadline = call.settings.between_chunks_s, call.deadline
        while piece := await read(min(stream.last_at + silence_s, deadline) - clock()):
            see(piece)
            await write(piece)
        await responder.end()
        return Ending(_OK, stream.timings())

    async def _until_first_event(self, response: Response) -> list[bytes]:
        """Hold the stream's pieces until its first event; see that it is not an error."""
        held: list[bytes] = []
        give_up_at = self.sent_at + self._first_byte_s()
        while True:
            piece = await response.read(give_up_at - self.call.clock())
            if not piece:
                message = f"{self.target.name} ended its stream without an event"
                raise Failed(_bad_gateway(message), Ending(_FAILURE))
            held.append(piece)
            beginning = piece if len(held) == 1 else b"".join(held)
            if tap.has_event(beginning) or len(beginning) > _HELD_BYTES:
                break
        outcome = stream_error(beginning)
        if outcome is not None:
            raise self._error_in_stream(beginning, outcome)
        self.tap.first(beginning)
        seconds = self.tap.first_at - self.sent_at
        self.lease.timing(Timing(_FIRST_TOKEN, seconds, max(1.0, len(self.call.body) / 4)))
        self.call.first_token(self.target, seconds)
        return held

    def _error_in_stream(self, beginning: bytes, outcome: Outcome) -> Failed:
        status = {Outcome.CONGESTION: 503, Outcome.LOADING: 503, Outcome.CLIENT_ERROR: 400}.get(
            outcome, _BAD_GATEWAY
        )
        text = beginning[:500].decode("utf-8", "replace").strip()
        message = f"{self.target.name} answered with an error in its stream: {text}"
        retry_after_s = 1 if status == 503 else None  # noqa: PLR2004
        refused = Refused(status, message, code="upstream_error", retry_after_s=retry_after_s)
        return Failed(refused, Ending(outcome))

    # -- everything else -----------------------------------------------------------------------

    async def _relay_plain(self, response: Response) -> Ending:
        call = self.call
        responder = call.responder
        first = last = await response.read(self._first_byte_s())
        if first[:64].lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
            raise self._html(response.status)
        await call.stop_keepalive()
        own = call.own_headers(self.target.id, self.lease.queued_s)
        await responder.start(response.status, headers.to_client(response.headers, own))
        while not response.complete:
            await responder.write(last)
            last = await response.read(self._between_s())
        await self._write_rest(response, last)
        if stream_error(first[:_HELD_BYTES]) is not None:
            return Ending(_FAILURE)
        seconds = call.clock() - self.sent_at
        return Ending(_OK, (tap.work(seconds, first, last, len(call.body)),))

    async def _write_rest(self, response: Response, piece: bytes) -> None:
        """Everything has arrived: no more waiting, except for the client."""
        while following := await response.read():
            await self.call.responder.write(piece)
            piece = following
        await self.call.responder.end(piece)

    async def _relay_error(self, response: Response) -> Ending:
        """Pass an endpoint's refusal on, and understand it."""
        body = bytearray()
        while piece := await response.read(self._between_s()):
            body += piece
            if len(body) > _ERROR_BYTES:
                break
        fields = _text_headers(response)
        outcome = self.target.engine.classify(response.status, fields, bytes(body))
        seconds = retry_after_s(fields, now=self.call.wall_clock())
        ending = Ending(outcome, retry_after_s=seconds)
        is_html = fields.get("content-type", "").lower().startswith("text/html")
        if response.status > _LAST_STATUS or is_html or self.call.responder.started:
            status = min(response.status, _LAST_STATUS)
            message = f"{self.target.name} answered {response.status}: {_excerpt(body)}"
            code = "upstream_error"
            raise Failed(Refused(status, message, code=code, retry_after_s=seconds), ending)
        await self.call.stop_keepalive()
        own = self.call.own_headers(self.target.id, self.lease.queued_s)
        own.append((b"content-length", str(len(body)).encode()))
        if outcome is Outcome.CONGESTION and seconds is None:
            own.append((b"retry-after", b"1"))
        await self.call.responder.start(response.status, headers.to_client(response.headers, own))
        await self.call.responder.end(bytes(body))
        return ending

    # -- time, and failures ----------------------------------------------------------------------

    def _first_byte_s(self) -> float:
        settings = self.call.settings
        most = settings.probe_s if self.lease.is_probe else settings.first_byte_s
        return max(0.0, min(most, self.call.deadline - self.call.clock()))

    def _between_s(self) -> float:
        left = self.call.deadline - self.call.clock()
        return max(0.0, min(self.call.settings.between_chunks_s, left))

    def _html(self, status: int) -> Failed:
        message = f"{self.target.name} answered {status} with an HTML page instead of JSON"
        return Failed(_bad_gateway(message), Ending(_FAILURE))

    def _failed(self, error: UpstreamError) -> Failed:
        """What a failure means to the client, and to the endpoint."""
        outcome = classify_error(error)
        if isinstance(error, UpstreamTimeout):
            if self.call.clock() >= self.call.deadline:
                # The request ran out of its own time; that is no fault of an endpoint that would
                # have had longer.
                if not self.call.deadline_is_default:
                    outcome = _CANCELLED
                message = f"{self.target.name} did not answer before the request's deadline"
                refused = Refused(_GATEWAY_TIMEOUT, message, code="deadline")
                return Failed(refused, Ending(outcome))
            message = f"{self.target.name} did not answer in time: {error}"
            return Failed(Refused(_GATEWAY_TIMEOUT, message, code="timeout"), Ending(outcome))
        advice = hint(error)
        message = f"{self.target.name} failed: {error}" + (f" ({advice})" if advice else "")
        return Failed(_bad_gateway(message), Ending(outcome))


class Failed(Exception):  # noqa: N818 - it carries an answer
    """An exchange that ended without a whole answer for the client.

    Args:
        refused: what to tell the client.
        ending: what it tells of the endpoint.
    """

    def __init__(self, refused: Refused, ending: Ending) -> None:
        super().__init__(str(refused))
        self.refused = refused
        self.ending = ending


def _bad_gateway(message: str) -> Refused:
    return Refused(_BAD_GATEWAY, message, code="upstream_error")


def _header(response: Response, name: bytes) -> bytes:
    for key, value in response.headers:
        if key.lower() == name:
            return value
    return b""


def _text_headers(response: Response) -> Mapping[str, str]:
    return {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers}


def _excerpt(body: bytearray) -> str:
    return " ".join(bytes(body[:300]).decode("utf-8", "replace").split())
