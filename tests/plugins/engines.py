"""Real engines and a real gateway process for any test that asks for them."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from forebay.demo.engines import Engine, start_chat_engine, start_embedding_engine
from forebay.demo.models import DemoNotInstalled
from forebay.demo.processes import ChildProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def llamacpp_chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """llama.cpp with a tiny chat model: 8 slots, 1 thread."""
    with ExitStack() as stack:
        yield _started(start_chat_engine, stack, tmp_path_factory)


@pytest.fixture(scope="session")
def llamacpp_embed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """llama.cpp with MiniLM: 8 slots, 2 threads, 384 dimensions."""
    with ExitStack() as stack:
        yield _started(start_embedding_engine, stack, tmp_path_factory)


def _started(
    start: Callable[[ExitStack, Path], Engine],
    stack: ExitStack,
    folders: pytest.TempPathFactory,
) -> Engine:
    try:
        return start(stack, folders.mktemp("engine"))
    except DemoNotInstalled as missing:
        # Where everything must be tested, a skip would be a silent hole.
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@dataclass(frozen=True)
class Gateway:
    """A running `forebay serve`."""

    url: str
    pid: int
    log: Path

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Gateway]]:
    """Starts gateways from configurations given as dicts; they end with the test."""
    with ExitStack() as stack:

        def start(config: dict[str, Any]) -> Gateway:
            port = _free_port()
            name = f"gateway-{port}"
            path = tmp_path / f"{name}.json"
            path.write_text(json.dumps(config), "utf-8")
            command = [sys.executable, "-m", "forebay", "serve", "--config", str(path)]
            command += ["--host", "127.0.0.1", "--port", str(port)]
            process = ChildProcess(name, command, tmp_path / f"{name}.log")
            stack.enter_context(process)
            url = f"http://127.0.0.1:{port}"
            process.await_ok(f"{url}/readyz")
            return Gateway(url, process.pid, process.log)

        yield start


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
