"""Emulated hosts and a gateway as processes, on a network where hosts can be cut off."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from bench.network import Network, NetworkUnavailable
from forebay.demo.gateway import start_gateway
from forebay.demo.processes import Processes
from forebay.emulator import EmulatorSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from bench.network import Host
    from forebay.demo.gateway import Gateway
    from forebay.demo.processes import ChildProcess

_PORT = 8100


@pytest.fixture
def network() -> Iterator[Network]:
    """The test, and what it starts, is at the site of this network."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(Network())
        except NetworkUnavailable as why:
            # Where everything must be tested, a skip would be a silent hole.
            if os.environ.get("CI") == "true":
                pytest.fail(str(why))
            pytest.skip(str(why))
        yield made


@dataclass(frozen=True)
class EmulatedHost:
    """An emulated host as a process on a host of its own."""

    host: Host
    process: ChildProcess
    http: aiohttp.ClientSession

    @property
    def chat_url(self) -> str:
        return f"http://{self.host.address}:{_PORT}/v1"

    @property
    def embed_url(self) -> str:
        return f"http://{self.host.address}:{_PORT + 1}/v1"

    async def record(self) -> dict[str, Any]:
        async with self.http.get(f"http://{self.host.address}:{_PORT}/emulator/record") as answer:
            return await answer.json()

    async def breaks(self, **fault: Any) -> None:
        url = f"http://{self.host.address}:{_PORT}/emulator/faults"
        async with self.http.post(url, json=fault) as answer:
            assert answer.status == 200


@dataclass(frozen=True)
class Site:
    """Where the test is: it starts hosts and gateways, and asks them."""

    network: Network
    processes: Processes
    http: aiohttp.ClientSession

    def host(self, name: str, spec: EmulatorSpec) -> EmulatedHost:
        host = self.network.add(name)
        file = self.processes.folder / f"{name}.spec.json"
        file.write_text(spec.model_dump_json(exclude_defaults=True))
        command = [sys.executable, "-m", "forebay", "emulate", "--json", "--spec", str(file)]
        command += ["--host", host.address, "--port", str(_PORT)]
        process = self.processes.start(name, self.network.command(host, command))
        process.await_line(r"(\{.*\})")
        return EmulatedHost(host, process, self.http)

    def gateway(self, config: dict[str, Any]) -> Gateway:
        return start_gateway(self.processes, config)

    async def ask(self, gateway: Gateway, path: str, body: dict[str, Any]) -> Answer:
        async with self.http.post(f"{gateway.base_url}/{path}", json=body) as answer:
            return Answer(answer.status, answer.headers.copy(), await answer.read())

    async def embed(self, gateway: Gateway, text: str = "some text") -> Answer:
        return await self.ask(gateway, "embeddings", {"model": "embedding", "input": text})

    async def look(self, gateway: Gateway, page: str) -> dict[str, Any]:
        async with self.http.get(f"{gateway.url}/forebay/{page}") as answer:
            return await answer.json()


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture
async def site(network: Network, tmp_path: Path) -> AsyncIterator[Site]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        with Processes(tmp_path) as processes:
            yield Site(network, processes, http)
