"""One request on its way through the gateway: who waits for it, until when, and what it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from forebay.adapters.telemetry.requests import RequestObserver
    from forebay.config.settings import TimeoutSettings
    from forebay.proxy.keepalive import KeepAlive
    from forebay.proxy.look import Look
    from forebay.proxy.message import Headers, Request, Responder
    from forebay.proxy.target import Target


TIMEOUT_HEADER = b"x-request-timeout"


@dataclass(frozen=True, slots=True)
class Context:
    """What all requests have in common.

    Args:
        loop: the running one; its clock is the only clock.
        settings: time-outs.
        observer: hears of requests.
    """

    loop: asyncio.AbstractEventLoop
    settings: TimeoutSettings
    observer: RequestObserver


class Call:
    """The request, the client, and the time that is left.

    Args:
        request: as it came.
        responder: answers it.
        look: what its body says.
        body: what goes to the endpoint: as it came, or with gzip undone.
        request_id: names it in logs, here and at the endpoint.
        asked_at: when it had arrived, on `clock`.
        deadline: when it must have been answered, on `clock`.
        context: what all requests have in common.

    Attributes:
        affinity: see `Ticket.affinity`.
        attempts: endpoints that it has been sent to, the present one among them.
        keepalive: keeps a stream alive that has nothing to say yet.
    """

    __slots__ = (
        "affinity",
        "asked_at",
        "attempts",
        "body",
        "clock",
        "context",
        "deadline",
        "keepalive",
        "look",
        "loop",
        "observer",
        "request",
        "request_id",
        "responder",
        "settings",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - all that a request is comes together here
        self,
        request: Request,
        responder: Responder,
        look: Look,
        body: bytes,
        request_id: bytes,
        asked_at: float,
        deadline: float,
        context: Context,
    ) -> None:
        self.request = request
        self.responder = responder
        self.look = look
        self.body = body
        self.request_id = request_id
        self.asked_at = asked_at
        self.deadline = deadline
        self.context = context
        self.affinity: str | None = None
        self.attempts = 1
        self.keepalive: KeepAlive | None = None
        self.loop = context.loop
        self.clock = context.loop.time
        self.settings = context.settings
        self.observer = context.observer

    def part(self, body: bytes, responder: Responder, *, attempts: int = 1) -> Call:
        """A part of this request: with another body, and `responder` to take the answer."""
        part = Call(
            self.request,
            responder,
            self.look,
            body,
            self.request_id,
            self.asked_at,
            self.deadline,
            self.context,
        )
        part.attempts = attempts
        return part

    @property
    def id_was_sent(self) -> bool:
        """Whether the client chose `request_id`, so that it gets that one back."""
        return b"x-request-id" in self.request.fields

    @property
    def deadline_is_default(self) -> bool:
        """Whether the client set no time of its own."""
        return TIMEOUT_HEADER not in self.request.fields

    @staticmethod
    def wall_clock() -> datetime:
        """The date that ``Retry-After`` dates are compared with."""
        return datetime.now(UTC)

    def own_headers(self) -> Headers:
        """The gateway's own headers of a refusal."""
        return [(b"x-request-id", self.request_id)]

    def first_token(self, target: Target, seconds: float) -> None:
        """The first event of a stream has come, `seconds` after the request was sent."""
        self.observer.first_token(target.endpoint, seconds)

    async def stop_keepalive(self) -> None:
        """From here on the response is the exchange's alone."""
        if self.keepalive is not None:
            keepalive, self.keepalive = self.keepalive, None
            await keepalive.stop()

    def drop_keepalive(self) -> None:
        """Stop it without waiting; nothing more is sent to this client."""
        if self.keepalive is not None:
            self.keepalive.cancel()
