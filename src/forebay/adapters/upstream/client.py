"""The client of one endpoint. Theory of operation: see the package."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.adapters.upstream.origin import Origin
from forebay.adapters.upstream.pool import Pool
from forebay.adapters.upstream.request import encode_head, protocol_and_host
from forebay.adapters.upstream.response import Response
from forebay.adapters.upstream.settings import UpstreamSettings, UpstreamStats
from forebay.adapters.upstream.tls import tls_context
from forebay.errors import UpstreamTimeout

if TYPE_CHECKING:
    from collections.abc import Sequence


_DEFAULTS = UpstreamSettings()


class Upstream:
    """HTTP/1.1 to one endpoint; belongs to the event loop that uses it first.

    Args:
        base_url: URL of the endpoint; only scheme, host and port matter here.
        settings: bounds, times and TLS.

    Raises:
        ConfigError: a URL that names no http or https endpoint.
    """

    def __init__(self, base_url: str, settings: UpstreamSettings = _DEFAULTS) -> None:
        self._origin = Origin.parse(base_url)
        self._settings = settings
        self._protocol_and_host = protocol_and_host(self._origin.authority)
        self._tls = (settings.tls or tls_context()) if self._origin.is_tls else None
        self._pool: Pool | None = None
        self._reuses = 0
        self._transparent_retries = 0

    def __repr__(self) -> str:
        return f"<Upstream {self._origin}: {self.stats()}>"

    def stats(self) -> UpstreamStats:
        """Return the state of this instant."""
        pool = self._pool
        return UpstreamStats(
            open=pool.open if pool else 0,
            idle=pool.idle if pool else 0,
            connects=pool.connects if pool else 0,
            reuses=self._reuses,
            transparent_retries=self._transparent_retries,
        )

    async def send(
        self,
        method: bytes,
        path: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        head_timeout_s: float,
    ) -> Response:
        """Send a request and return its response as soon as the head is here.

        Cancelling this closes the connection that it used.

        Args:
            method: e.g. ``b"POST"``.
            path: the whole request target, e.g. ``b"/v1/chat/completions?x=1"``.
            headers: sent as given, except for what belongs to this hop: host, content-length,
                transfer-encoding, connection, te, keep-alive, upgrade and expect are left out;
                Host and Content-Length are added.
            body: the whole content, perhaps empty.
            head_timeout_s: from the request to the end of the response head; connecting apart.

        Raises:
            PoolExhausted: `max_connections` are in use, or this side lacks descriptors or ports.
            ConnectFailed: no connection.
            UpstreamTimeout: no head in time.
            UpstreamError: the endpoint went away or broke the protocol.
            ValueError: a header or path with a line break or NUL in it.
        """
        head = encode_head(method, path, headers, len(body), self._protocol_and_host)
        head_only = method == b"HEAD"
        # Asking which loop runs is a system call, so it is asked only where a connection is made.
        pool = self._pool or self._pool_of_this_loop()
        connection = pool.take_idle()
        is_reused = connection is not None
        while True:
            if connection is None:
                connection = await self._pool_of_this_loop().connect()
            self._reuses += is_reused
            started_at = pool.loop.time()
            connection.start(head, body, head_only=head_only)
            if connection.error is None:
                try:
                    await connection.waiter.wait(head_timeout_s)
                except BaseException:
                    connection.close()
                    raise
            error = connection.error
            if error is None or connection.parser.status:
                return Response(connection, pool)
            final = error.response_started or isinstance(error, UpstreamTimeout)
            del error  # raised here it would refer to itself, and keep the body with it
            if final or not is_reused:
                raise connection.take_error()
            # The server had closed a connection that lay idle: the request gets a new one.
            self._transparent_retries += 1
            head_timeout_s -= pool.loop.time() - started_at
            connection, is_reused = None, False

    def retire(self) -> None:
        """Keep no connection any longer than its request lasts. What runs or comes still works."""
        self._pool_of_this_loop().retire()

    async def aclose(self) -> None:
        """Close all connections; responses under way fail, and `send` raises from now on."""
        await self._pool_of_this_loop().close()

    def _pool_of_this_loop(self) -> Pool:
        loop = asyncio.get_running_loop()
        pool = self._pool
        if pool is None:
            pool = self._pool = Pool(loop, self._origin, self._settings, self._tls)
        elif pool.loop is not loop:
            raise RuntimeError(f"{self._origin}: this client belongs to another event loop")
        return pool
