"""A server that does to its clients exactly what a test tells it to, on bare sockets."""

from __future__ import annotations

import asyncio
import re
import select
import socket
import struct
from contextlib import suppress


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock, number):
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._received = b""
        self.number = number  # 0 for the first connection that the server accepted

    async def request(self):
        """Return the next request, head and content; ``b""`` if the client leaves."""
        while b"\r\n\r\n" not in self._received:
            piece = await self._recv()
            if not piece:
                return b""
            self._received += piece
        head, end, _ = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        size = len(head) + len(end) + (int(length[1]) if length else 0)
        pieces, missing = [self._received], size - len(self._received)
        while missing > 0:
            piece = await self._recv()
            if not piece:
                return b""
            pieces.append(piece)
            missing -= len(piece)
        received = b"".join(pieces)
        request, self._received = received[:size], received[size:]
        return request

    async def answer(self, *pieces):
        """Read a request, then send the pieces; ``b""`` if the client leaves."""
        request = await self.request()
        if request:
            for piece in pieces:
                await self.send(piece)
        return request

    async def send(self, data):
        await self._loop.sock_sendall(self._sock, data)

    def can_send(self):
        """Whether the client, or a buffer on the way to it, takes more."""
        return bool(select.select([], [self._sock], [], 0)[1])

    def close(self):
        self._sock.close()

    def reset(self):
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    async def gone(self):
        """Return when the client has closed or reset the connection."""
        while self._sock.fileno() != -1 and await self._recv():
            pass

    async def _recv(self):
        try:
            return await self._loop.sock_recv(self._sock, 65536)
        except ConnectionError:
            return b""


class Server:
    """Runs a script for each connection, and then waits until the client has closed it."""

    def __init__(self, script, host="127.0.0.1"):
        self._script = script
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=512)
        self._listener.setblocking(False)
        self._tasks = set()
        self._none_connected = asyncio.Event()
        self._none_connected.set()
        self.peers = []
        self.connected = 0
        port = self._listener.getsockname()[1]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._accepting = asyncio.create_task(self._accept())

    async def left(self):
        """Return when no client is connected; they have a second for it."""
        await asyncio.wait_for(self._none_connected.wait(), 1)

    async def aclose(self):
        tasks = [self._accepting, *self._tasks]
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()
        for peer in self.peers:
            peer.close()
        faults = [r for r in results if isinstance(r, Exception)]
        if faults:
            raise ExceptionGroup("the server's script failed", faults)

    async def _accept(self):
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self._listener)
            sock.setblocking(False)
            peer = Peer(sock, len(self.peers))
            self.peers.append(peer)
            self.connected += 1
            self._none_connected.clear()
            self._tasks.add(asyncio.create_task(self._run(peer)))

    async def _run(self, peer):
        try:
            with suppress(ConnectionError):  # a client may leave while the script talks
                await self._script(peer)
            await peer.gone()
        finally:
            self.connected -= 1
            if not self.connected:
                self._none_connected.set()
