"""Lets TCP find out that the other host is gone.

Who waits for an answer sends nothing, and hears nothing if the other host loses its power or its
network: on this side the connection is as good as ever. So the kernel asks now and then whether
the host is there (keep-alive, RFC 9293 section 3.8.4), and gives up if nothing that it sent was
acknowledged for some time (user timeout, RFC 5482). The host's kernel answers, not the engine,
which may be as busy as it likes.
"""

from __future__ import annotations

import errno
import socket
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

_TRIES = 3
_GONE = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})


def watch(sock: TransportSocket, after_s: float) -> None:
    """Let a connection fail when the other host has acknowledged nothing for `after_s`.

    The kernel counts whole seconds, so that it takes one or two more. Systems other than Linux name
    their options differently; what is not there is left as the system has it.
    """
    every_s = max(1, ceil(after_s / _TRIES))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", every_s),
        ("TCP_KEEPINTVL", every_s),
        ("TCP_KEEPCNT", _TRIES),
        ("TCP_USER_TIMEOUT", round(after_s * 1000)),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def is_gone(error: Exception) -> bool:
    """Whether a connection ended because the other host did not answer any more."""
    return isinstance(error, OSError) and error.errno in _GONE
