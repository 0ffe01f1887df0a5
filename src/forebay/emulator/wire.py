"""What an HTTP server never does to a connection on purpose."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

_LINGER_0 = struct.pack("ii", 1, 0)  # closing sends RST, and drops what was not yet sent


def reset(transport: asyncio.Transport | None) -> None:
    """Reset the connection, if it is still there."""
    if transport is not None and not transport.is_closing():
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
        transport.abort()


def close(transport: asyncio.Transport | None, last_bytes: bytes = b"") -> None:
    """Close the connection, if it is still there, with bytes sent past the HTTP layer."""
    if transport is not None and not transport.is_closing():
        transport.write(last_bytes)
        transport.close()
