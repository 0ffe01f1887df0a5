"""How to tell that this side has run out of something, which is no endpoint's fault."""

from __future__ import annotations

import errno
import os
import socket

# Descriptors, of the process or the machine; memory, for buffers or at all; local ports.
OWN_ERRNOS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
)


def is_own(error: OSError) -> bool:
    """Whether a connection could not be made for want of something on this side."""
    if isinstance(error, socket.gaierror):
        # Where the resolver can open neither file nor socket, it says that there is no such name.
        return not _can_open()
    return error.errno in OWN_ERRNOS


def _can_open() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return True
