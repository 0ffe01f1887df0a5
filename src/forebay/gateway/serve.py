"""Run the gateway: one process, one event loop, uvicorn in front."""

from __future__ import annotations

import asyncio
import logging
import socket
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
    from forebay.config.plan import Plan

_log = logging.getLogger(__name__)

# Clients that pool connections keep them for up to a minute or so; it is for them to close.
_KEEP_ALIVE_S = 75
_DRAIN_S = 30
_BACKLOG = 2048


def serve(plan: Plan, *, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT; what is under way then is finished.

    Args:
        plan: the configuration.
        host: address to listen on.
        port: TCP port; 0 takes a free one, which the log tells.
    """
    keep_freed_memory()
    log.configure(plan.config.forebay.log_level)
    for warning in plan.warnings:
        _log.warning("%s", warning)
    with (
        listen(host, port) as listening,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as run,
    ):
        run.run(_serve(plan, listening))


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


async def _serve(plan: Plan, listening: socket.socket) -> None:
    async with Deployment(plan) as deployment:
        spare_the_collector()
        await uvicorn.Server(server_config(deployment)).serve(sockets=[listening])


def server_config(deployment: Deployment) -> uvicorn.Config:
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
        timeout_graceful_shutdown=_DRAIN_S,
    )
