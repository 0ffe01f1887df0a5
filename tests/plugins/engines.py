"""Real engines and a real gateway process for any test that asks for them."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest

from forebay.demo import gateway
from forebay.demo.engines import Engine, start_chat_engine, start_embedding_engine
from forebay.demo.models import DemoNotInstalled
from forebay.demo.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forebay.demo.gateway import Gateway


@pytest.fixture(scope="session")
def llamacpp_chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """llama.cpp with a tiny chat model: 8 slots, 1 thread."""
    with Processes(tmp_path_factory.mktemp("chat-engine")) as processes:
        yield _started(start_chat_engine, processes)


@pytest.fixture(scope="session")
def llamacpp_embed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """llama.cpp with MiniLM: 8 slots, 2 threads, 384 dimensions."""
    with Processes(tmp_path_factory.mktemp("embedding-engine")) as processes:
        yield _started(start_embedding_engine, processes)


def _started(start: Callable[[Processes], Engine], processes: Processes) -> Engine:
    try:
        return start(processes)
    except DemoNotInstalled as missing:
        # Where everything must be tested, a skip would be a silent hole.
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Gateway]]:
    """Starts gateways from configurations given as dicts; they end with the test."""
    numbers = itertools.count(1)
    with Processes(tmp_path) as processes:

        def start(config: dict[str, Any]) -> Gateway:
            return gateway.start_gateway(processes, config, f"gateway-{next(numbers)}")

        yield start
