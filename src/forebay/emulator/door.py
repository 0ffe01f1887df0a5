"""Where an engine's requests come in: received in full, recorded, and dealt their faults.

Whose client has left is in flight no more, but that takes the loop some turns to find out; who came
later would be counted beside it, and the record would show more at a time than there ever was. So a
request is counted only when what the network had brought before it has had its effect.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from forebay.emulator.exchange import Exchange
from forebay.emulator.record import Entry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from forebay.emulator.exchange import ErrorBody, Handler
    from forebay.emulator.faults import EngineName, Faults
    from forebay.emulator.record import Record

# One to read the end of what a client sends, which comes behind its request; one to tell the server
# that the connection is lost; one in which the handler that this cancels ends.
_TURNS_TO_LEAVE = 3


@dataclass(frozen=True, slots=True)
class Door:
    """The way into one engine.

    Args:
        engine: which.
        error_body: its body for an error.
        faults: what goes wrong now.
        record: counts its inference requests, which are those that post.
    """

    engine: EngineName
    error_body: ErrorBody
    faults: Faults
    record: Record

    def application(self, handlers: Mapping[str, Handler], max_body_bytes: int) -> web.Application:
        """Return an application with handlers by method and path, as in ``GET /health``."""
        app = web.Application(client_max_size=max_body_bytes)
        for endpoint, handler in handlers.items():
            method, path = endpoint.split()
            app.router.add_route(method, path, self._serving(handler, inference=method == "POST"))
        return app

    def _serving(
        self, handler: Handler, *, inference: bool
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            for _ in range(_TURNS_TO_LEAVE):
                await asyncio.sleep(0)
            fault = self.faults.take(self.engine, request.path, body, inference=inference)
            entry = self.record.begin(self.engine) if inference else Entry(lambda _: None)
            return await Exchange(request, body, entry, fault, self.error_body).answer(handler)

        return serve
