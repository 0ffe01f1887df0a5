"""The documented configurations as they are written: their names, their ports, their failover."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import anyio
import pytest

from forebay.emulator import ChatSpec, EmbeddingSpec, EmulatorSpec
from support.waiting import seen

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[1] / "config" / "examples"


class Deployment:
    """The hosts that a configuration names, and a gateway that runs it."""

    def __init__(self, site, chat: str, embedder: str) -> None:
        self.site = site
        self.chat, self.embedder = chat, embedder
        self.spec = EmulatorSpec(
            chat=ChatSpec(model=chat), embedding=EmbeddingSpec(model=embedder, overhead_s=0.02)
        )

    def host(self, name: str, *aliases: str):
        """A host with an emulated GPU, whose servers are behind port 80."""
        return self.site.host(name, self.spec, *aliases, on_port_80=True)

    async def check(self, file: Path) -> None:
        """Run `forebay check`, which must be content, and find every model."""
        command = [sys.executable, "-m", "forebay", "check", str(file), "--strict", "--probe"]
        done = await anyio.run_process(self.site.network.command(None, command), check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    async def embed(self, gateway, text: str = "some text"):
        body = {"model": self.embedder, "input": text}
        answer = await self.site.ask(gateway, "embeddings", body)
        assert answer.status == 200, answer.body
        assert len(answer.json["data"][0]["embedding"]) == 64
        return answer.headers["x-forebay-endpoint"]

    async def talk(self, gateway):
        messages = [{"role": "user", "content": "hello"}]
        body = {"model": self.chat, "messages": messages, "max_tokens": 4}
        answer = await self.site.ask(gateway, "chat/completions", body)
        assert answer.status == 200, answer.body
        assert answer.json["usage"]["completion_tokens"] == 4
        return answer.headers["x-forebay-endpoint"]

    async def storm(self, gateway) -> None:
        async with asyncio.TaskGroup() as tasks:
            for n in range(30):
                tasks.create_task(self.embed(gateway, f"text {n}"))
            for _ in range(10):
                tasks.create_task(self.talk(gateway))


async def most_in_flight(host) -> int:
    """By the host's own count, over both of its servers."""
    return (await host.record())["gpu"]["max_inflight"]


async def test_one_gpu_that_chat_and_embeddings_share(site) -> None:
    deployment = Deployment(site, "qwen3.6-27b", "bge-m3")
    gb10 = deployment.host("gb10", "vllm.arpa", "vllm-embed.arpa")
    file = EXAMPLES / "one_gpu.json"
    await deployment.check(file)
    gateway = site.serve(file)
    assert await deployment.talk(gateway) == "qwen3.6-27b@vllm.arpa:80"
    assert await deployment.embed(gateway) == "bge-m3@vllm-embed.arpa:80"
    await deployment.storm(gateway)
    assert await most_in_flight(gb10) <= 6


async def test_two_gpus_and_a_fallback_on_the_one_that_chats(site) -> None:
    deployment = Deployment(site, "<llm>", "<embed>")
    shared, own = deployment.host("llm-host"), deployment.host("embed-host")
    file = EXAMPLES / "two_gpus.json"
    await deployment.check(file)
    gateway = site.serve(file)
    assert await deployment.talk(gateway) == "<llm>@llm-host:80"
    assert await deployment.embed(gateway) == "<embed>@embed-host:80"
    own.kill()
    assert await deployment.embed(gateway) == "<embed>@llm-host:80"
    await deployment.storm(gateway)
    assert await most_in_flight(shared) <= 32
    status = await site.look(gateway, "embedding-endpoint-status")
    assert (status["is_fallback"], status["active_gpu_group"]) == (True, "llm-host")


async def test_an_embedder_whose_fallback_shares_the_gpu_of_chat(site) -> None:
    deployment = Deployment(site, "qwen3.6-27b", "bge-m3")
    gb10 = deployment.host("gb10", "vllm.arpa", "vllm-embed.arpa")
    gr1080 = deployment.host("gr1080", "gr1080-embed.arpa")
    file = EXAMPLES / "embedder_with_fallback.json"
    await deployment.check(file)
    by_check = (await gb10.record())["embedding"]["requests"]
    gateway = site.serve(file)
    assert await deployment.talk(gateway) == "qwen3.6-27b@vllm.arpa:80"
    assert await deployment.embed(gateway) == "bge-m3@gr1080-embed.arpa:80"
    await deployment.storm(gateway)
    assert (await gb10.record())["embedding"]["requests"] == by_check

    gr1080.kill()
    await deployment.storm(gateway)
    assert (await gb10.record())["embedding"]["requests"] >= by_check + 30
    assert await most_in_flight(gb10) <= 20
    status = await site.look(gateway, "embedding-endpoint-status")
    assert status["active_model_key"] == "embedding:fallback"
    assert status["active_base_url"] == "http://vllm-embed.arpa/v1"
    assert (status["failover_count"], status["recovery_count"]) == (1, 0)

    gr1080.restart()
    primary = "bge-m3@gr1080-embed.arpa:80"
    await seen(lambda: deployment.embed(gateway), lambda endpoint: endpoint == primary, 15)
    status = await site.look(gateway, "embedding-endpoint-status")
    assert status["active_model_key"] == "embedding"
    assert (status["failover_count"], status["recovery_count"]) == (1, 1)
    log = gateway.log.read_text()
    assert log.count("failover model=bge-m3") == log.count("recovery model=bge-m3") == 1
