"""Real engines and a real gateway process for any test that asks for them."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from forebay.demo import gateway
from forebay.demo.engines import Engine, start_chat_engine, start_embedding_engine
from forebay.demo.models import DemoNotInstalled, embedding_model
from forebay.demo.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forebay.demo.gateway import Gateway

T = TypeVar("T")


@pytest.fixture(scope="session")
def llamacpp_chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """llama.cpp with a tiny chat model: 8 slots, 1 thread."""
    with Processes(tmp_path_factory.mktemp("chat-engine")) as processes:
        yield _installed(lambda: start_chat_engine(processes))


@pytest.fixture(scope="session")
def llamacpp_embed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """llama.cpp with MiniLM: 8 slots, 2 threads, 384 dimensions."""
    with Processes(tmp_path_factory.mktemp("embedding-engine")) as processes:
        yield _installed(lambda: start_embedding_engine(processes))


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The file of MiniLM, for a test that starts its own engine."""
    return _installed(embedding_model)


def _installed(what: Callable[[], T]) -> T:
    try:
        return what()
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
