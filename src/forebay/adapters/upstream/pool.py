"""The connections to one endpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.adapters.exhaustion import is_own
from forebay.adapters.upstream.connection import Connection
from forebay.errors import ConnectFailed, PoolExhausted, UpstreamError

if TYPE_CHECKING:
    import ssl

    from forebay.adapters.upstream.origin import Origin
    from forebay.adapters.upstream.settings import UpstreamSettings


class Pool:
    """Connections to one endpoint, on one event loop.

    The one that was used last is used first, so that after a burst the others come to rest and are
    closed when they have been idle for `UpstreamSettings.idle_s`.

    Args:
        loop: the running loop.
        origin: where to connect.
        settings: bounds and times.
        tls: context for a TLS origin, else None.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        origin: Origin,
        settings: UpstreamSettings,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.loop = loop
        self.connects = 0
        self._origin = origin
        self._name = str(origin)
        self._settings = settings
        self._tls = tls
        self._connections: set[Connection] = set()
        self._idle: dict[Connection, float] = {}  # to when it may be reused; oldest first
        self._expiry: asyncio.TimerHandle | None = None
        self._closed = self._retired = False

    def __repr__(self) -> str:
        return f"<Pool {self._name}: {self.open} open, {self.idle} idle>"

    @property
    def open(self) -> int:
        """Connections that exist or are being made."""
        return len(self._connections)

    @property
    def idle(self) -> int:
        """Connections that wait for a request."""
        return len(self._idle)

    def take_idle(self) -> Connection | None:
        """Take the idle connection that was used last, if there is one."""
        while self._idle:
            connection, usable_until = self._idle.popitem()
            if self.loop.time() < usable_until:
                return connection
            connection.close()
        return None

    async def connect(self) -> Connection:
        """Make a connection.

        Raises:
            PoolExhausted: there are as many as there may be, or this side lacks what one needs.
            ConnectFailed: it could not be made, or not in time.
            UpstreamError: the pool is, or was meanwhile, closed.
        """
        limit = self._settings.max_connections
        if self._closed:
            raise self._closed_error()
        if limit is not None and len(self._connections) >= limit:
            raise PoolExhausted(
                f"{self._name}: all {limit} connections are in use; raise max_connections"
            )
        connection = Connection(self.loop, self._name, self._settings, self._on_hang_up)
        self._connections.add(connection)
        try:
            await self._open_transport(connection)
        except BaseException:
            connection.close()
            raise
        if self._closed:
            raise self._closed_error()
        self.connects += 1
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request, or close it if there can be none."""
        if not self._retired and connection.rest():
            idle_s = self._settings.idle_s
            self._idle[connection] = self.loop.time() + idle_s
            if self._expiry is None:
                self._expiry = self.loop.call_later(idle_s, self._expire)
        else:
            connection.close()

    def retire(self) -> None:
        """Close what is idle now, and each other connection with the end of its request."""
        self._retired = True
        for connection in tuple(self._idle):
            connection.close()

    async def close(self) -> None:
        """Close all connections, those in use too; return when their sockets are closed."""
        self._closed = True
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        connections = list(self._connections)
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.lost

    async def _open_transport(self, connection: Connection) -> None:
        connect_timeout_s = self._settings.connect_timeout_s
        host = self._origin.host
        server_name = (self._settings.tls_server_name or host) if self._tls else None
        try:
            async with asyncio.timeout(connect_timeout_s):
                await self.loop.create_connection(
                    lambda: connection,
                    host,
                    self._origin.port,
                    ssl=self._tls,
                    server_hostname=server_name,
                )
        except TimeoutError as error:
            raise ConnectFailed(
                f"{self._name}: no connection within {connect_timeout_s:g} s"
            ) from error
        except OSError as error:
            if is_own(error):
                raise PoolExhausted(f"{self._name}: {error}") from error
            raise ConnectFailed(f"{self._name}: no connection: {error}") from error

    def _on_hang_up(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._idle.pop(connection, None)

    def _expire(self) -> None:
        self._expiry = None
        now = self.loop.time()
        while self._idle:
            connection, usable_until = next(iter(self._idle.items()))
            if usable_until > now:
                self._expiry = self.loop.call_at(usable_until, self._expire)
                return
            connection.close()

    def _closed_error(self) -> UpstreamError:
        return UpstreamError(f"{self._name}: this client is closed")
