"""Emulated hosts and a gateway as processes, on a network where hosts can be cut off."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from bench.network import Network, NetworkUnavailable

from forebay.demo.gateway import Gateway, start_gateway
from forebay.demo.processes import Processes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bench.network import Host

    from forebay.demo.processes import ChildProcess
    from forebay.emulator import EmulatorSpec

_PORT = 8100
_DOOR = Path(__file__).parents[1] / "support" / "front_door.py"
_GATEWAY = "http://127.0.0.1:8080"


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
class Answer:
    """A whole answer."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class EmulatedHost:
    """An emulated GPU, as processes on a host of its own."""

    site: Site
    host: Host
    spec: Path
    on_port_80: bool
    processes: list[ChildProcess] = field(default_factory=list)

    @property
    def chat_url(self) -> str:
        return f"http://{self.host.address}:{_PORT}/v1"

    @property
    def embed_url(self) -> str:
        return f"http://{self.host.address}:{_PORT + 1}/v1"

    async def record(self) -> dict[str, Any]:
        url = f"http://{self.host.address}:{_PORT}/emulator/record"
        async with self.site.http.get(url) as answer:
            return await answer.json()

    def restart(self) -> None:
        command = [sys.executable, "-m", "forebay", "emulate", "--json", "--spec", str(self.spec)]
        command += ["--host", self.host.address, "--port", str(_PORT)]
        emulator = self.site.start(self.host.name, command, self.host)
        self.processes[:] = [emulator]
        if self.on_port_80:
            command = [sys.executable, str(_DOOR), self.host.address, str(_PORT), str(_PORT + 1)]
            door = self.site.start(f"door-{self.host.name}", command, self.host)
            self.processes.append(door)
            door.await_line("(=+ Running on .*)")
        emulator.await_line(r"(\{.*\})")

    def kill(self) -> None:
        """Kill all that runs there; what connects after that is refused."""
        for process in self.processes:
            os.kill(process.pid, signal.SIGKILL)
            process.stop()


@dataclass(frozen=True)
class EngineHost:
    """A real engine, as a process on a host of its own."""

    host: Host
    root: str


@dataclass(frozen=True)
class Site:
    """Where the test is: it starts hosts and gateways, and asks them."""

    network: Network
    processes: Processes
    http: aiohttp.ClientSession

    def start(self, name: str, command: list[str], host: Host | None = None) -> ChildProcess:
        """Start a command on a host, or at the site, where hosts have names."""
        return self.processes.start(name, self.network.command(host, command))

    def host(
        self, name: str, spec: EmulatorSpec, *aliases: str, on_port_80: bool = False
    ) -> EmulatedHost:
        """Start an emulated host: on ports of its own, and, if so asked, on port 80 as well."""
        file = self.processes.folder / f"{name}.spec.json"
        file.write_text(spec.model_dump_json(exclude_defaults=True))
        host = EmulatedHost(self, self.network.add(name, *aliases), file, on_port_80)
        host.restart()
        return host

    def engine(self, name: str, model: Path) -> EngineHost:
        """Start llama.cpp with an embedding model on a host."""
        host = self.network.add(name)
        command = [sys.executable, "-m", "forebay.demo.llama_server", "--host", host.address]
        command += ["--model", str(model), "--alias", "minilm", "--embeddings"]
        engine = self.start(name, command, host)
        return EngineHost(host, engine.await_line(r"listening on (\S+)"))

    def gateway(self, config: dict[str, Any]) -> Gateway:
        return start_gateway(self.processes, config)

    def serve(self, config: Path) -> Gateway:
        """Run `forebay serve`, as a person would, where the names of hosts are known."""
        command = [sys.executable, "-m", "forebay", "serve", "--config", str(config)]
        process = self.start("serve", command)
        process.await_ok(f"{_GATEWAY}/readyz")
        return Gateway(_GATEWAY, process.pid, process.log, config)

    async def ask(self, gateway: Gateway, path: str, body: dict[str, Any]) -> Answer:
        async with self.http.post(f"{gateway.base_url}/{path}", json=body) as answer:
            return Answer(answer.status, answer.headers.copy(), await answer.read())

    async def embed(self, gateway: Gateway, text: str = "some text") -> Answer:
        return await self.ask(gateway, "embeddings", {"model": "embedding", "input": text})

    async def look(self, gateway: Gateway, page: str) -> dict[str, Any]:
        async with self.http.get(f"{gateway.url}/forebay/{page}") as answer:
            return await answer.json()


@pytest.fixture
async def site(network: Network, tmp_path: Path) -> AsyncIterator[Site]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        with Processes(tmp_path) as processes:
            yield Site(network, processes, http)
