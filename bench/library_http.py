"""What a request costs through a session's HTTP client, beside the same client straight."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING

import httpx2

import forebay

from . import proc
from .backend import MODEL, directive

if TYPE_CHECKING:
    from pathlib import Path

_REQUESTS = 400


async def beside_straight(rounds: int, folder: Path) -> float:
    """CPU time through Forebay over that straight, of small answers in one piece."""
    ratios = []
    port = proc.free_port()
    command = (sys.executable, "-m", "bench.backend", "--port", str(port))
    with proc.running(command, core=1, port=port, log=folder / "backend.log"):
        base_url = f"http://127.0.0.1:{port}/v1"
        path = folder / "http.json"
        endpoint = {"base_url": base_url, "gpu_group": "gpu", "engine": "unknown"}
        config = {"chat_models": [{"id": MODEL, "endpoints": [endpoint]}]}
        path.write_text(json.dumps(config | {"forebay": {"limit": "fixed"}}))
        async with forebay.open(path) as fb, httpx2.AsyncClient(base_url=base_url) as straight:
            governed = fb.http_client()
            for client in (straight, governed):
                await _cpu_s(client)  # connects
            for _ in range(rounds):
                bare = await _cpu_s(straight)
                ratios.append(await _cpu_s(governed) / bare)
    return statistics.median(ratios)


async def _cpu_s(client: httpx2.AsyncClient) -> float:
    body = {"model": MODEL, "messages": [{"role": "user", "content": directive()}]}
    began_at = time.process_time()
    for _ in range(_REQUESTS):
        (await client.post("/chat/completions", json=body)).raise_for_status()
    return time.process_time() - began_at
