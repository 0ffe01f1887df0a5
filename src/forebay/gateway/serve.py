"""Run the gateway: one process, one event loop, uvicorn in front."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from forebay.adapters.telemetry import log
from forebay.errors import ForebayError
from forebay.gateway.admin import admin_app
from forebay.gateway.asgi import Application
from forebay.gateway.deployment import Deployment
from forebay.gateway.keys import Keys
from forebay.gateway.process import keep_freed_memory, spare_the_collector
from forebay.gateway.protocol import Protocol
from forebay.gateway.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.config.plan import Plan

_log = logging.getLogger(__name__)

# Clients that pool connections keep them for up to a minute or so; it is for them to close.
_KEEP_ALIVE_S = 75
_DRAIN_S = 30.0
# For what is left after it: to send a last answer, and for the client to take it.
_LAST_WORDS_S = 1.0
_TICK_S = 0.02
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BACKLOG = 2048


def serve(plan: Plan, *, host: str, port: int, drain_s: float = _DRAIN_S) -> None:
    """Serve until SIGTERM or SIGINT; what runs then is finished, what waits is refused.

    Args:
        plan: the configuration.
        host: address to listen on.
        port: TCP port; 0 takes a free one, which the log tells.
        drain_s: how long what runs has to end by itself.
    """
    keep_freed_memory()
    log.configure(plan.config.forebay.log_level)
    for warning in plan.warnings:
        _log.warning("%s", warning)
    with (
        listen(host, port) as listening,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as run,
    ):
        run.run(_serve(plan, listening, drain_s))


def listen(host: str, port: int) -> socket.socket:
    """Take the address.

    Raises:
        ForebayError: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ForebayError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another --port"
        ) from None
    shown = f"[{host}]" if ":" in host else host
    _log.info("listening on http://%s:%d", shown, listening.getsockname()[1])
    return listening


async def _serve(plan: Plan, listening: socket.socket, drain_s: float) -> None:
    async with Deployment(plan) as deployment:
        spare_the_collector()
        await Server(deployment, drain_s).serve(sockets=[listening])


class Server(uvicorn.Server):
    """uvicorn's server, which stops so that every client hears of it.

    Args:
        deployment: what it serves.
        drain_s: how long what runs has to end by itself.
    """

    def __init__(self, deployment: Deployment, drain_s: float) -> None:
        super().__init__(server_config(deployment, drain_s))
        self._limiter = deployment.limiter

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle them, and no more.

        uvicorn raises them again in the end, which kills the process before anything unwinds.
        """
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse what waits, let what runs end, and answer and cut what is left then."""
        self._limiter.close()
        await super().shutdown(sockets)
        state = self.server_state
        if self.force_exit:  # else uvicorn has done so
            for task in state.tasks:
                task.cancel()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=_LAST_WORDS_S)
        for connection in tuple(state.connections):
            connection.transport.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                while state.connections:  # noqa: ASYNC110 - nobody tells when one is closed
                    await asyncio.sleep(_TICK_S)
        for connection in tuple(state.connections):
            connection.transport.abort()


def server_config(deployment: Deployment, drain_s: float = _DRAIN_S) -> uvicorn.Config:
    """How uvicorn serves a deployment."""
    settings = deployment.settings
    keys = Keys(settings.api_keys)
    app = Application(
        Proxy(deployment),
        admin_app(deployment, keys),
        keys,
        body_limit_bytes=settings.body_limit_bytes,
        stall_s=settings.timeouts.between_chunks_s,
    )
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # it calls a cut stream an error, and logs bodies' exceptions
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=drain_s,  # type: ignore[arg-type] # a fraction is as good
    )
