"""One request on its way through the gateway: who waits for it, until when, and what it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from forebay.adapters.telemetry.metrics import Metrics
    from forebay.config.settings import TimeoutSettings
    from forebay.gateway.keepalive import KeepAlive
    from forebay.gateway.look import Look
    from forebay.gateway.message import Headers, Request, Responder
    from forebay.gateway.target import Target


class Call:
    """The request, the client, and the time that is left.

    Args:
        request: as it came.
        responder: answers it.
        look: what its body says.
        body: what goes to the endpoint: as it came, or with gzip undone.
        request_id: names it in logs, here and at the endpoint.
        id_was_sent: the client chose `request_id`, so it gets that one back.
        asked_at: when it had arrived, on the loop's clock.
        deadline: when it must have been answered, on `clock`.
        deadline_is_default: the client set no time of its own.
        loop: the running one; its clock is the only clock.
        settings: time-outs.
        metrics: counts it.
    """

    __slots__ = (
        "asked_at",
        "body",
        "clock",
        "deadline",
        "deadline_is_default",
        "id_was_sent",
        "keepalive",
        "look",
        "loop",
        "metrics",
        "request",
        "request_id",
        "responder",
        "settings",
    )

    def __init__(  # noqa: PLR0913 - one place where all that a request is comes together, by name
        self,
        *,
        request: Request,
        responder: Responder,
        look: Look,
        body: bytes,
        request_id: bytes,
        id_was_sent: bool,
        asked_at: float,
        deadline: float,
        deadline_is_default: bool,
        loop: asyncio.AbstractEventLoop,
        settings: TimeoutSettings,
        metrics: Metrics,
    ) -> None:
        self.request = request
        self.responder = responder
        self.look = look
        self.body = body
        self.request_id = request_id
        self.id_was_sent = id_was_sent
        self.asked_at = asked_at
        self.deadline = deadline
        self.deadline_is_default = deadline_is_default
        self.settings = settings
        self.metrics = metrics
        self.keepalive: KeepAlive | None = None
        self.loop = loop
        self.clock = loop.time

    def part(self, body: bytes, responder: Responder) -> Call:
        """A part of this request: with another body, and `responder` to take the answer."""
        return Call(
            request=self.request,
            responder=responder,
            look=self.look,
            body=body,
            request_id=self.request_id,
            id_was_sent=self.id_was_sent,
            asked_at=self.asked_at,
            deadline=self.deadline,
            deadline_is_default=self.deadline_is_default,
            loop=self.loop,
            settings=self.settings,
            metrics=self.metrics,
        )

    @staticmethod
    def wall_clock() -> datetime:
        """The date that ``Retry-After`` dates are compared with."""
        return datetime.now(UTC)

    def own_headers(self) -> Headers:
        """The gateway's own headers of a refusal."""
        return [(b"x-request-id", self.request_id)]

    def first_token(self, target: Target, seconds: float) -> None:
        """The first event of a stream has come, `seconds` after the request was sent."""
        self.metrics.first_token(target.endpoint, seconds)

    async def stop_keepalive(self) -> None:
        """From here on the response is the exchange's alone."""
        if self.keepalive is not None:
            keepalive, self.keepalive = self.keepalive, None
            await keepalive.stop()

    def drop_keepalive(self) -> None:
        """Stop it without waiting; nothing more is sent to this client."""
        if self.keepalive is not None:
            self.keepalive.cancel()
