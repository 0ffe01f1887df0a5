"""An emulated host, a configuration that governs it, and what runs a how-to as its user does."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.emulator import ChatSpec, EmbeddingSpec, Emulator, EmulatorSpec
from support.configs import emulated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from forebay.emulator import Host

HOWTO = Path(__file__).parents[2] / "examples" / "howto"
BUDGET = 5  # of which chat's floor keeps one from whatever is best effort
# Quick, but slow enough that requests meet there.
SPEC = EmulatorSpec(
    chat=ChatSpec(weights_s=0.001, overhead_s=0.001, prefill_overhead_s=0.02),
    embedding=EmbeddingSpec(weights_s=0.001, token_s=2e-6, overhead_s=0.02),
)
_MOST_S = 300


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with Emulator(SPEC).running() as running:
        yield running


@pytest.fixture
def config(host, tmp_path) -> Path:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(emulated(host, budget=BUDGET)))
    return file


@pytest.fixture
def run(host) -> Callable[..., Awaitable[str]]:
    """Runs a how-to, and sees that it was governed; returns what it prints."""

    async def run(
        name: str,
        *arguments: object,
        python: Path | str = sys.executable,
        quiet: bool = True,
        **environment: str,
    ) -> str:
        process = await asyncio.create_subprocess_exec(
            python,
            *(["-W", "error"] if quiet else []),
            HOWTO / name,
            *map(str, arguments),
            env={**os.environ, **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, errors = await asyncio.wait_for(process.communicate(), _MOST_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, errors.decode()
        if quiet:
            assert errors == b""
        record = host.record()
        assert 1 < record["gpu"]["max_inflight"] <= BUDGET
        for engine in ("chat", "embedding"):
            assert record[engine]["requests"] == record[engine]["finished"]
        return output.decode()

    return run
