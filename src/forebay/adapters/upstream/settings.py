"""What an upstream client may be told, and what it tells about itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """Settings of one `Upstream`.

    Args:
        max_connections: most connections at a time, in use or idle; None is no bound. The admission
            in front must be what limits: a request beyond this bound fails at once.
        idle_s: an idle connection is closed after this long. Below the 5 s of uvicorn (and thus of
            vLLM and Infinity), so that servers seldom close first.
        connect_timeout_s: for name look-up, TCP and TLS together.
        unreachable_s: a connection fails when the other host has acknowledged nothing for so long.
        max_head_bytes: largest response head, interim responses included; also the most bytes
            without content (trailers, chunk extensions) in a row.
        tls: context for https; None is the system's defaults. `tls_context` makes others.
        tls_server_name: name to send (SNI) and to verify in place of the URL's host.
    """

    max_connections: int | None = None
    idle_s: float = 4.0
    connect_timeout_s: float = 5.0
    unreachable_s: float = 15.0
    max_head_bytes: int = 65536
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    tls_server_name: str | None = None


@dataclass(frozen=True, slots=True)
class UpstreamStats:
    """State of one `Upstream` at one instant.

    Args:
        open: connections that exist or are being made.
        idle: those of them that wait for a request.
        connects: connections made so far.
        reuses: requests sent on a connection that had served before.
        transparent_retries: requests sent again because a reused connection turned out dead.
    """

    open: int
    idle: int
    connects: int
    reuses: int
    transparent_retries: int
