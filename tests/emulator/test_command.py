from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp

pytestmark = pytest.mark.anyio
FOREBAY = "from forebay.cli import main; main()"


@asynccontextmanager
async def emulate(*options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FOREBAY, "emulate", *options,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_it_prints_its_urls_serves_and_ends_cleanly(
    http: aiohttp.ClientSession, signum: signal.Signals
) -> None:
    async with emulate("--port", "0", "--json") as process:
        urls = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
        body = {"model": urls["chat_model"], "prompt": "hello", "max_tokens": 2}
        async with http.post(f"{urls['chat_url']}/completions", json=body) as response:
            assert response.status == 200
        body = {"model": urls["embed_model"], "input": "hello"}
        async with http.post(f"{urls['embed_url']}/embeddings", json=body) as response:
            assert response.status == 200
        async with http.get(f"{urls['control_url']}/emulator/record") as response:
            assert (await response.json())["gpu"]["finished"] == 2
        process.send_signal(signum)
        assert await asyncio.wait_for(process.wait(), 5) == 0
        assert await process.stderr.read() == b""


async def test_it_reads_a_spec(http: aiohttp.ClientSession, tmp_path: Path) -> None:
    spec = tmp_path / "host.json"
    spec.write_text('{"chat": {"model": "my-model"}}')
    async with emulate("--port", "0", "--json", "--spec", str(spec)) as process:
        urls = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
        async with http.get(f"{urls['chat_url']}/models") as response:
            assert (await response.json())["data"][0]["id"] == "my-model"


async def test_a_wrong_spec_is_told_and_nothing_starts(tmp_path: Path) -> None:
    spec = tmp_path / "host.json"
    spec.write_text('{"chat": {"modell": "x"}}')
    async with emulate("--spec", str(spec)) as process:
        assert await asyncio.wait_for(process.wait(), 20) == 1
        error = await process.stderr.read()
    assert b"chat.modell" in error
    assert b"Traceback" not in error


async def test_people_are_told_the_urls_too() -> None:
    async with emulate("--port", "0") as process:
        line = await asyncio.wait_for(process.stdout.readline(), 20)
        assert line.startswith(b"Chat        http://127.0.0.1:")
