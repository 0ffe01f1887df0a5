"""A gateway that has no connection left says so, and blames neither endpoint nor input."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from forebay.adapters.upstream import Upstream, UpstreamSettings
from support.embedder import Embedder, one_embedder, texts
from support.waiting import eventually
from support.wire import JSON, connected

pytestmark = pytest.mark.anyio


async def never(request):
    if request["input"] == ["t0"]:
        await anyio.sleep_forever()


@pytest.mark.parametrize("count", [1, 64])
async def test_it_is_503_and_nothing_is_charged_or_asked_again(serve, gateway, count):
    server = Embedder(serve, never)
    running = await gateway(one_embedder(server.url))
    targets = running.deployment.targets
    (name,) = targets
    few = Upstream(server.url, UpstreamSettings(max_connections=1))
    targets[name] = replace(targets[name], upstream=few)
    async with connected(running.port) as ahead, connected(running.port) as wire:
        await ahead.send("POST", "/v1/embeddings", {"model": "m", "input": ["t0"]}, [JSON])
        await eventually(lambda: few.stats().open == 1)
        for _ in range(5):
            body = {"model": "m", "input": texts(count, 1)}
            answer = await wire.ask("POST", "/v1/embeddings", body, [JSON])
            assert (answer.status, answer.error["code"]) == (503, "gateway_saturated")
            assert int(answer.head["retry-after"]) >= 1
    assert len(server.bodies) <= 1
    assert running.breaker("m")["failures"] == 0
    assert running.counted("forebay_retries_total") == 0
    await few.aclose()
