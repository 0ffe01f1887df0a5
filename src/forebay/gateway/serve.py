"""Run the gateway: one process, one event loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvloop

from forebay.adapters.telemetry import log
from forebay.errors import ForebayError
from forebay.gateway.admin import admin_app
from forebay.gateway.connection import ClientConnection
from forebay.gateway.deployment import MeteredDeployment
from forebay.gateway.front import Front
from forebay.gateway.keys import Keys
from forebay.gateway.process import keep_freed_memory, provide_files, spare_the_collector
from forebay.proxy.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from forebay.config.plan import Plan
    from forebay.config.settings import ForebaySettings

_log = logging.getLogger(__name__)

_DRAIN_S = 30.0
# For what is left after it: to send a last answer, and for the client to take it.
_LAST_WORDS_S = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BACKLOG = 2048


def serve(plan: Plan, *, host: str, port: int, drain_s: float = _DRAIN_S) -> None:
    """Serve until SIGTERM or SIGINT; what runs then is finished, what waits is refused.

    Its configuration is followed: the file is watched, and looked at on SIGHUP.

    Args:
        plan: the configuration to begin with.
        host: address to listen on.
        port: TCP port; 0 takes a free one, which the log tells.
        drain_s: how long what runs has to end by itself.
    """
    # Until the file is followed, it is not asked about; what changes before is seen then.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
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
        raise ForebayError(f"cannot listen on {host} port {port}: {_why_not(error)}") from None
    shown = f"[{host}]" if ":" in host else host
    _log.info("listening on http://%s:%d", shown, listening.getsockname()[1])
    return listening


def _why_not(error: OSError) -> str:
    reasons = {
        socket.EAI_NONAME: "the name cannot be resolved; give --host an address of this machine",
        errno.EADDRINUSE: "something listens there already; stop it, or choose another --port",
        errno.EADDRNOTAVAIL: "this machine does not have that address; choose another --host "
        "(127.0.0.1: only this machine, 0.0.0.0: every IPv4 address, ::: every address)",
        errno.EACCES: "that port takes a privilege (CAP_NET_BIND_SERVICE); "
        "choose a --port from 1024 up",
    }
    return reasons.get(error.errno or 0) or os.strerror(error.errno or 0)


async def _serve(plan: Plan, listening: socket.socket, drain_s: float) -> None:
    async with MeteredDeployment(plan) as deployment, deployment.reload.following():
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, deployment.reload.look)
        spare_the_collector()
        await Server(deployment, drain_s).serve(listening)


class Server:
    """Accepts connections until it is told to stop, and stops so that every client hears of it.

    Args:
        deployment: what it serves.
        drain_s: how long what runs has to end by itself.

    Attributes:
        front: what the connections share.
    """

    def __init__(self, deployment: MeteredDeployment, drain_s: float = _DRAIN_S) -> None:
        settings = deployment.settings
        self._keys = Keys(settings.api_keys)
        self.front = Front(
            Proxy(deployment),
            admin_app(deployment, self._keys),
            self._keys,
            body_limit_bytes=settings.body_limit_bytes,
            stall_s=settings.timeouts.between_chunks_s,
        )
        deployment.on_change(self._use)
        provide_files(deployment.plan)
        self._deployment = deployment
        self._drain_s = drain_s
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    def _use(self, settings: ForebaySettings) -> None:
        """Go by these settings from now on."""
        provide_files(self._deployment.plan)
        self._keys.use(settings.api_keys)
        self.front.body_limit_bytes = settings.body_limit_bytes
        self.front.stall_s = settings.timeouts.between_chunks_s
        log.set_level(settings.log_level)

    async def serve(self, listening: socket.socket) -> None:
        """Serve until a signal comes; a second one ends it at once."""
        loop = self.front.loop
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        try:
            async with self.accepting(listening):
                await self._stop.wait()
            await self._drain()
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    @asynccontextmanager
    async def accepting(self, listening: socket.socket) -> AsyncIterator[None]:
        """Accept connections for the time of a block."""
        front = self.front
        acceptor = await front.loop.create_server(
            lambda: ClientConnection(front), sock=listening, backlog=_BACKLOG
        )
        try:
            yield
        finally:
            acceptor.close()

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def _drain(self) -> None:
        """Refuse what waits, let what runs end, and answer and cut what is left then."""
        front = self.front
        self._deployment.limiter.close()
        front.stopping = True
        for connection in tuple(front.connections):
            connection.stop()
        if front.connections:
            _log.info(
                "stopping: %d connections still have an answer to come, and up to %g s for it; "
                "Ctrl-C again breaks them off",
                len(front.connections),
                self._drain_s,
            )
        await _first_of(front.empty(), self._hurry.wait(), within_s=self._drain_s)
        for connection in tuple(front.connections):
            connection.break_off()
        await _first_of(front.empty(), within_s=_LAST_WORDS_S)
        for connection in tuple(front.connections):
            connection.outgoing.abort()


async def _first_of(*waits: Coroutine[None, None, object], within_s: float) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
