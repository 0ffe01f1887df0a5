"""The sending half of a client's connection: what the client has not taken yet, and how it ends."""

from __future__ import annotations

import asyncio
import socket
import struct
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

# Above the one the client is waited for, below the other no more.
_HIGH_WATER, _LOW_WATER = 64 * 1024, 16 * 1024
# Closing then resets the connection.
_NO_LINGER = struct.pack("ii", 1, 0)


class Outgoing:
    """The sending half of a client's connection.

    Args:
        transport: of the connection.

    Attributes:
        backlog: what to await before more is written; None while the client keeps up.
        write: hands bytes to the transport, which keeps what cannot be sent yet; likewise
            `writelines`.
    """

    __slots__ = ("_transport", "_unsent", "backlog", "write", "writelines")

    def __init__(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(_HIGH_WATER, _LOW_WATER)
        self._transport = transport
        self._unsent: float = inf  # bytes, when that was looked at last
        self.backlog: Backlog | None = None
        self.write = transport.write
        self.writelines = transport.writelines

    @property
    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._transport.is_closing()

    def fall_behind(self) -> None:
        """The client does not take what is sent as fast as it is sent."""
        self.backlog = Backlog()

    def catch_up(self) -> None:
        """The client has taken it, or is gone."""
        if self.backlog is not None:
            self.backlog.open()
            self.backlog = None

    def finish(self) -> None:
        """Write nothing more; what has been written is still sent."""
        self._transport.close()

    def is_flushed(self) -> bool:
        """Close for good if everything is sent, or nothing of it was taken since the last look."""
        left = self._transport.get_write_buffer_size()
        if 0 < left < self._unsent:
            self._unsent = left
            return False
        self._transport.abort()
        return True

    def abort(self) -> None:
        """Close, sent or not."""
        self._transport.abort()

    def reset(self) -> None:
        """Close so that the client sees that it did not get everything."""
        if not self.is_closing:
            accepted = self._transport.get_extra_info("socket")
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()


class Backlog:
    """What a client has not taken yet: awaited by who would write on."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def open(self) -> None:
        """Let whoever waits go on."""
        self._event.set()

    def __await__(self) -> Generator[None, None, None]:
        yield from self._event.wait().__await__()
