"""Clients that leave: what had come before a request has been seen when that is counted."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from support.waiting import eventually

if TYPE_CHECKING:
    from forebay.emulator import Host

pytestmark = pytest.mark.anyio
CHAT = {"model": "chat", "prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": True}
EMBEDDING = {"input": ["some text"] * 16}
TIMES = 5
TURNS_TO_READ = 8


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def post(path: str, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (
        path.encode(),
        len(content),
        content,
    )


REQUESTS = {
    "chat_url": post("/v1/completions", CHAT),
    "embed_url": post("/v1/embeddings", EMBEDDING),
}


async def connected(host: Host, engine: str) -> socket.socket:
    """A connection that the host has accepted."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    await loop.sock_connect(sock, ("127.0.0.1", urlsplit(getattr(host, engine)).port))
    await loop.sock_sendall(sock, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await loop.sock_recv(sock, 1000)).startswith(b"HTTP/1.1 200")
    return sock


def split(request: bytes, known: str) -> tuple[bytes, bytes]:
    """What of a request the host has read before the loop stands still, and the rest of it."""
    at = {"nothing": 0, "nearly all": len(request) - 1, "all": len(request)}[known]
    return request[:at], request[at:]


@pytest.mark.parametrize("left", REQUESTS)
@pytest.mark.parametrize("came", REQUESTS)
@pytest.mark.parametrize(
    ("known_of_left", "known_of_came"),
    [
        ("nothing", "nothing"),
        ("nearly all", "nearly all"),
        ("all", "nothing"),
        ("all", "nearly all"),
    ],
)
async def test_a_request_is_not_counted_beside_one_whose_client_had_left_before(
    host: Host, left: str, came: str, known_of_left: str, known_of_came: str
) -> None:
    loop = asyncio.get_running_loop()
    left_before, left_now = split(REQUESTS[left], known_of_left)
    came_before, came_now = split(REQUESTS[came], known_of_came)
    for _ in range(TIMES):
        with ExitStack() as stack:
            leaving = [stack.enter_context(await connected(host, left)) for _ in range(3)]
            coming = [stack.enter_context(await connected(host, came)) for _ in range(3)]
            host.reset_record()
            for leaves, comes in zip(leaving, coming, strict=True):
                leaves.send(left_before)
                comes.send(came_before)
            for _ in range(TURNS_TO_READ):
                await asyncio.sleep(0)
            # The host has all of this when its loop turns next.
            for leaves, comes in zip(leaving, coming, strict=True):
                leaves.send(left_now)
                leaves.close()
                comes.send(came_now)
            for comes in coming:
                assert await loop.sock_recv(comes, 12) == b"HTTP/1.1 200"
            assert host.record()["gpu"]["max_inflight"] == 3
        await eventually(lambda: host.record()["gpu"]["inflight"] == 0)
