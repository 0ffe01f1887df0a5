"""One connection's requests, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from forebay.proxy.refusal import internal_error, shutting_down

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.gateway.front import Handler
    from forebay.gateway.responder import Responder
    from forebay.proxy.message import Request
    from forebay.proxy.refusal import Refused

_log = logging.getLogger(__name__)


class Incoming:
    """A request on its way in, and how it will be answered.

    Attributes:
        handler: serves it.
        body: what has come of it.
        waits: the client sends the body when it has been told to go on.
        unread: done when the rest of a refused request's body has come; None if it is not refused.
    """

    __slots__ = ("body", "handler", "request", "responder", "unread", "waits")

    handler: Handler

    def __init__(self, request: Request, responder: Responder) -> None:
        self.request = request
        self.responder = responder
        self.body = bytearray()
        self.waits = False
        self.unread: asyncio.Future[None] | None = None


class Turns:
    """Serves requests in the order in which they came.

    One task serves all requests of a connection: making one costs more than what most of the rest
    of a request does. To cancel it ends the connection as well.

    Args:
        loop: the running one.
        on_served: called behind each request, with its responder; `begin_next` goes on.

    Attributes:
        ahead_bytes: bodies of the requests that wait for their turn.
        gone: the client has left.
        stalled: the client was given up: it did not go on reading.
    """

    __slots__ = (
        "_ahead",
        "_idle",
        "_loop",
        "_on_served",
        "_serving",
        "_worker",
        "ahead_bytes",
        "gone",
        "stalled",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_served: Callable[[Responder], None],
    ) -> None:
        self._loop = loop
        self._on_served = on_served
        self._ahead: deque[Incoming] = deque()
        self._serving: Incoming | None = None
        self._worker: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None  # done when there is something to do
        self.ahead_bytes = 0
        self.gone = False
        self.stalled = False

    @property
    def task(self) -> asyncio.Task[None] | None:
        """Serves a request, if one is served."""
        return self._worker if self._serving is not None else None

    @property
    def ahead(self) -> int:
        """Requests that wait for their turn."""
        return len(self._ahead)

    @property
    def answering(self) -> bool:
        """Whether some of an answer has yet to be written."""
        return self._serving is not None and not self._serving.responder.complete

    @property
    def unanswered(self) -> Responder | None:
        """Answers the request that is served, if no answer has begun."""
        serving = self._serving
        return None if serving is None or serving.responder.started else serving.responder

    def line_up(self, incoming: Incoming) -> None:
        """Serve a request when its turn has come."""
        if self._serving is None:
            self._begin(incoming)
        else:
            self._ahead.append(incoming)
            self.ahead_bytes += len(incoming.request.body)

    def begin_next(self) -> None:
        """Serve the next request, if there is one."""
        if self._ahead:
            incoming = self._ahead.popleft()
            self.ahead_bytes -= len(incoming.request.body)
            self._begin(incoming)

    def leave(self) -> None:
        """The client has left: end the request that is served."""
        self.gone = True
        self._ahead.clear()
        self._on_served = _nothing  # nor does this hold on to the connection any more
        serving, self._serving = self._serving, None
        if self._idle is not None:
            self._wake()
        elif self._worker is not None and serving is not None and not serving.responder.complete:
            self._worker.cancel()

    def give_up(self) -> None:
        """The client does not take its answer, and gets no more of it."""
        self.stalled = True
        if self._worker is not None:
            self._worker.cancel()

    def _begin(self, incoming: Incoming) -> None:
        self._serving = incoming
        if self._worker is None:
            self._worker = self._loop.create_task(self._work())
        elif self._idle is not None:
            self._wake()

    def _wake(self) -> None:
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    async def _work(self) -> None:
        try:
            while (incoming := self._serving) is not None:
                await self._serve(incoming)
                del incoming  # it may be a while until the next one
                if self._serving is None and not self.gone:
                    self._idle = self._loop.create_future()
                    await self._idle
        finally:
            self._worker = self._idle = None

    async def _serve(self, incoming: Incoming) -> None:
        request, responder = incoming.request, incoming.responder
        try:
            await incoming.handler(request, responder)
        except asyncio.CancelledError:
            if not (self.gone or self.stalled):
                responder.keep_alive = False
                self._ahead.clear()
                await _break_off(shutting_down(), responder)
                raise
        except Exception:  # noqa: BLE001 - whatever it is, it is logged and the client hears
            _log.exception("%r %r: cannot be served", request.method, request.path)
            await _break_off(internal_error(), responder)
        finally:
            self._serving = None
            self._on_served(responder)


def _nothing(responder: Responder) -> None:
    """Nobody is there to be told."""


async def _break_off(refused: Refused, responder: Responder) -> None:
    """Answer a request that is not served to its end, as far as that is still possible."""
    if not responder.complete:
        await refused.answer(responder, [])
