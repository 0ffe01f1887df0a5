"""Lets the other side find out that this one is gone, at once.

A transport that is aborted closes its socket one turn of the loop later. By then the slot of the
request may belong to another one, and the bytes of that may be at the endpoint first: for a moment
it would have more to do than it is allowed. So the kernel is told before the slot is given back.

It sends a FIN, which is what servers of inference look for while they compute: an end of what they
read. It goes out behind the bytes of the request that the kernel still has, and without those an
endpoint has nothing to compute. TLS ends without a farewell of its own, as when it is aborted.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket


def leave(sock: TransportSocket) -> None:
    """End the connection in both directions; its owner has yet to close it.

    A connection that is closed already, by whichever side, is left as it is.
    """
    descriptor = sock.fileno()
    if descriptor == -1:
        return
    # uvloop's sockets cannot do it; a second object for the same descriptor can with any loop.
    same = socket.socket(sock.family, sock.type, sock.proto, fileno=descriptor)
    try:
        with suppress(OSError):  # reset by the other side
            same.shutdown(socket.SHUT_RDWR)
    finally:
        same.detach()
