from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import aiohttp
import pytest

from forebay.emulator import Emulator, EmulatorSpec, EngineName, Hang
from forebay.errors import ForebayError
from support.waiting import eventually

if TYPE_CHECKING:
    from forebay.emulator import Host

pytestmark = pytest.mark.anyio


async def test_leaving_the_block_ends_requests_that_hang(http: aiohttp.ClientSession) -> None:
    async with Emulator().running() as host:
        host.faults.add(Hang(engine=EngineName.CHAT))
        hanging = asyncio.create_task(http.post(f"{host.chat_url}/completions", json={}))
        await eventually(lambda: host.record()["chat"]["inflight"] == 1)
        left_at = time.monotonic()
    assert time.monotonic() - left_at < 2
    with pytest.raises(aiohttp.ClientError):
        await hanging


async def test_a_port_that_is_taken_is_named(host: Host) -> None:
    port = int(host.chat_url.split(":")[2].split("/")[0])
    with pytest.raises(ForebayError, match=f"cannot listen on 127.0.0.1 port {port}"):
        async with Emulator().running(port=port):
            pass


async def test_an_error_of_the_one_who_uses_it_passes_through() -> None:
    with pytest.raises(ConnectionResetError):
        async with Emulator().running():
            raise ConnectionResetError


async def test_idle_connections_are_closed() -> None:
    async with Emulator(EmulatorSpec(keepalive_s=0.05)).running() as host:
        port = int(host.chat_url.split(":")[2].split("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        data = await asyncio.wait_for(reader.read(), 3)
        assert data.startswith(b"HTTP/1.1 200")
        writer.close()


async def test_what_a_host_says_depends_on_the_seed_alone(http: aiohttp.ClientSession) -> None:
    async def answers(seed: int) -> list[str]:
        async with Emulator(EmulatorSpec(seed=seed)).running() as host:
            body = {"model": "chat", "prompt": "hello", "max_tokens": 4}
            async with http.post(f"{host.chat_url}/completions", json=body) as response:
                text = (await response.json())["choices"][0]["text"]
            async with http.post(f"{host.embed_url}/embeddings", json={"input": "a"}) as response:
                return [text, json.dumps((await response.json())["data"])]

    assert await answers(1) == await answers(1)
    first, second = await answers(1), await answers(2)
    assert first[0] != second[0]
    assert first[1] != second[1]
