"""Tells the other end at once that a connection is over."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


def shut(transport: asyncio.Transport) -> None:
    """Shut both directions of a connection whose transport is about to close.

    When this returns, the other end's kernel knows (on this host) or will know before anything that
    is sent to it later. It is a FIN: servers of inference look for the end of what they read while
    they compute. It goes behind what this end's kernel has yet to send; without the rest of its
    request, though, a server has nothing to compute.

    uvloop's stand-in for a socket cannot shut, so this goes through a socket of the same
    descriptor.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:  # closed already; a TLS transport has none then
        return
    same = socket.socket(sock.family, sock.type, sock.proto, sock.fileno())
    try:
        with suppress(OSError):  # the other end, or the network, was faster
            same.shutdown(socket.SHUT_RDWR)
    finally:
        same.detach()
