from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest

from support.waiting import eventually

if TYPE_CHECKING:
    import aiohttp

    from forebay.emulator import Host

pytestmark = pytest.mark.anyio
ENDS = ("finished", "refused", "faulted", "aborted")


async def chat(host: Host, http: aiohttp.ClientSession, tokens: int, **more: Any) -> None:
    body = {
        "model": "chat",
        "messages": [{"role": "user", "content": "x" * 400}],
        "max_tokens": tokens,
        "ignore_eos": True,
        **more,
    }
    async with http.post(f"{host.chat_url}/chat/completions", json=body) as response:
        async for _ in response.content:
            pass


async def embed(host: Host, http: aiohttp.ClientSession, texts: int = 16) -> None:
    body = {"input": [f"text number {i}" for i in range(texts)]}
    async with http.post(f"{host.embed_url}/embeddings", json=body) as response:
        await response.read()


def check_sums(record: dict[str, Any]) -> None:
    for part in (record["chat"], record["embedding"], record["gpu"]):
        assert part["requests"] == part["inflight"] + sum(part[end] for end in ENDS)
        assert 0 <= part["inflight"] <= part["max_inflight"]
    assert record["gpu"]["inflight"] == (
        record["chat"]["inflight"] + record["embedding"]["inflight"]
    )


async def test_counts_are_exact_under_load(host: Host, http: aiohttp.ClientSession) -> None:
    async def worker(requests: int, work: Any) -> None:
        for _ in range(requests):
            await work()
            check_sums(host.record())

    await asyncio.gather(
        *(worker(10, lambda: chat(host, http, 5, stream=True)) for _ in range(6)),
        *(worker(10, lambda: embed(host, http)) for _ in range(4)),
    )
    record = host.record()
    assert record["chat"] | {"engine": None} == {
        "inflight": 0, "max_inflight": 6, "requests": 60,
        "finished": 60, "refused": 0, "faulted": 0, "aborted": 0, "engine": None,
    }  # fmt: skip
    assert record["embedding"]["finished"] == 40
    assert record["embedding"]["max_inflight"] == 4
    assert record["gpu"]["max_inflight"] == 10
    assert record["chat"]["engine"]["output_tokens"] == 300
    assert record["embedding"]["engine"]["texts"] == 640


async def test_a_worker_that_waits_for_each_response_is_never_counted_twice(
    host: Host, http: aiohttp.ClientSession
) -> None:
    for i in range(60):
        await (embed(host, http) if i % 3 == 0 else chat(host, http, 2, stream=i % 2 == 0))
    record = host.record()
    assert record["gpu"]["requests"] == 60
    assert record["gpu"]["max_inflight"] == 1


async def test_counts_are_exact_when_clients_leave(host: Host, http: aiohttp.ClientSession) -> None:
    rng = random.Random(1)

    async def impatient(work: Any) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rng.uniform(0.001, 0.05)):
                await work()

    for _ in range(6):
        await asyncio.gather(
            *(impatient(lambda: chat(host, http, 200, stream=True)) for _ in range(8)),
            *(impatient(lambda: chat(host, http, 200)) for _ in range(4)),
            *(impatient(lambda: embed(host, http)) for _ in range(4)),
        )
        check_sums(host.record())
    await eventually(lambda: host.record()["gpu"]["inflight"] == 0)
    record = host.record()
    check_sums(record)
    assert record["chat"]["aborted"] > 0
    assert record["chat"]["finished"] == 0
    await eventually(lambda: host.record()["chat"]["engine"]["kv_blocks_used"] == 0)
    engine = host.record()["chat"]["engine"]
    assert (engine["sequences_running"], engine["sequences_waiting"]) == (0, 0)
    await chat(host, http, 3)
    assert host.record()["chat"]["finished"] == 1


async def test_a_client_that_leaves_aborts_its_sequence_within_a_step(
    host: Host, http: aiohttp.ClientSession
) -> None:
    task = asyncio.create_task(chat(host, http, 8000, stream=True))
    await eventually(lambda: host.record()["chat"]["engine"]["output_tokens"] >= 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await eventually(lambda: host.record()["chat"]["engine"]["aborted"] == 1)
    generated = host.record()["chat"]["engine"]["output_tokens"]
    await eventually(lambda: host.record()["chat"]["engine"]["kv_blocks_used"] == 0, within_s=0.5)
    assert host.record()["chat"]["engine"]["output_tokens"] == generated
    assert host.record()["chat"]["aborted"] == 1


async def test_a_reset_keeps_what_is_in_flight(host: Host, http: aiohttp.ClientSession) -> None:
    await chat(host, http, 2)
    task = asyncio.create_task(chat(host, http, 8000))
    await eventually(lambda: host.record()["chat"]["inflight"] == 1)
    async with http.delete(f"{host.control_url}/emulator/record") as response:
        record = await response.json()
    check_sums(record)
    assert record["chat"]["requests"] == record["chat"]["max_inflight"] == 1
    assert record["chat"]["finished"] == record["chat"]["engine"]["finished"] == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await eventually(lambda: host.record()["chat"]["aborted"] == 1)


async def test_the_record_is_the_same_on_both_ports(
    host: Host, http: aiohttp.ClientSession
) -> None:
    await asyncio.gather(chat(host, http, 2), embed(host, http))
    records = []
    for url in (host.chat_url, host.embed_url):
        async with http.get(f"{url.removesuffix('/v1')}/emulator/record") as response:
            records.append(await response.json() | {"now_s": None})
    assert records[0] == records[1] == host.record() | {"now_s": None}


async def test_the_timeline_tells_every_change(host: Host, http: aiohttp.ClientSession) -> None:
    await asyncio.gather(chat(host, http, 2), chat(host, http, 4), embed(host, http))
    async with http.get(f"{host.control_url}/emulator/record?timeline=100") as response:
        timeline = (await response.json())["timeline"]
    assert len(timeline) == 6
    assert [change["at_s"] for change in timeline] == sorted(change["at_s"] for change in timeline)
    assert max(change["gpu_inflight"] for change in timeline) == 3
    assert timeline[-1]["gpu_inflight"] == 0
    for url, count in (("?timeline=2", 2), ("", None)):
        async with http.get(f"{host.control_url}/emulator/record{url}") as response:
            last = (await response.json()).get("timeline")
        assert last == (None if count is None else timeline[-count:])


async def test_the_spec_can_be_read_back(host: Host, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{host.control_url}/emulator/spec") as response:
        assert await response.json() == host.spec.model_dump(mode="json")


async def test_wrong_control_requests_are_refused(host: Host, http: aiohttp.ClientSession) -> None:
    for method, path, body in (
        ("GET", "record?timeline=x", None),
        ("POST", "faults", {"engine": "chat", "kind": "unheard-of"}),
        ("POST", "faults", {"engine": "chat", "kind": "hang", "factor": 2}),
        ("DELETE", "faults?engine=printer", None),
    ):
        url = f"{host.control_url}/emulator/{path}"
        async with http.request(method, url, json=body) as response:
            assert response.status == 422
            assert (await response.json())["error"]
