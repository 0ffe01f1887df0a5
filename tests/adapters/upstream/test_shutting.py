"""An endpoint that is let off hears of it before anything else that this side does."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct

import pytest
import trustme

from forebay.adapters.upstream import UpstreamSettings, tls_context
from forebay.adapters.upstream.shutting import shut

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Listener:
    """An endpoint on a blocking socket: what it reads while the test stands still, it has."""

    def __init__(self, tls=None):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._tls = tls
        port = self._socket.getsockname()[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{port}"

    async def accept(self):
        return await asyncio.to_thread(self._accept)

    def _accept(self):
        peer, _ = self._socket.accept()
        if self._tls is not None:
            peer = self._tls.wrap_socket(peer, server_side=True)
        peer.settimeout(1)
        return peer

    def close(self):
        self._socket.close()


@pytest.fixture(params=["http", "https"])
def listener(request):
    tls = None
    if request.param == "https":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    listener = Listener(tls)
    yield listener
    listener.close()


@pytest.fixture
def upstream(listener, connect):
    return connect(listener.url, UpstreamSettings(tls=tls_context(verify=False)))


async def send(upstream):
    return await upstream.send(b"POST", b"/", [], b"{}", head_timeout_s=5)


async def received(listener):
    """The endpoint's end of a connection, when it has the whole of a request."""
    peer = await listener.accept()
    request = b""
    while not request.endswith(b"\r\n\r\n{}"):
        request += await asyncio.to_thread(peer.recv, 4096)
    return peer


async def answered(listener, upstream):
    """The endpoint's end of a connection, and a response that goes on."""
    sending = asyncio.create_task(send(upstream))
    peer = await received(listener)
    peer.sendall(HEAD)
    return peer, await sending


async def test_an_aborted_response_is_over_at_the_endpoint_at_once(listener, upstream):
    peer, response = await answered(listener, upstream)
    with peer:
        response.abort()
        assert peer.recv(1) == b""


async def test_a_request_given_up_before_its_head_is_over_at_the_endpoint_at_once(
    listener, upstream
):
    async def look_when_given_up():
        try:
            await send(upstream)
        finally:
            read.append(peer.recv(1))

    read = []
    task = asyncio.create_task(look_when_given_up())
    with await received(listener) as peer:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert read == [b""]


async def test_an_endpoint_that_reset_the_connection_is_left_without_an_error(listener, upstream):
    peer, response = await answered(listener, upstream)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    response.abort()
    assert (upstream.stats().open, response.complete) == (0, False)


async def test_shutting_a_lost_connection_ends_no_other_one(listener, upstream, until):
    """Its descriptor's number may be another connection's by now."""
    here, there = socket.socketpair()
    peer, response = await answered(listener, upstream)
    (connection,) = upstream._pool._connections
    transport = connection._transport
    lost = transport.get_extra_info("socket")
    number = lost.fileno()
    response.abort()
    await until(lambda: lost.fileno() == -1)
    os.dup2(here.fileno(), number)
    shut(transport)
    there.sendall(b"x")
    assert os.read(number, 1) == b"x"
    os.close(number)
    for sock in (here, there, peer):
        sock.close()
