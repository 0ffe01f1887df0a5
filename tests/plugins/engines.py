"""Real engines and a real gateway process for any test that asks for them."""

from __future__ import annotations

import itertools
import json
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from forebay.demo import gateway
from forebay.demo.engines import Engine, start_chat_engine, start_embedding_engine
from forebay.demo.models import DemoNotInstalled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forebay.demo.gateway import Gateway


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


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Gateway]]:
    """Starts gateways from configurations given as dicts; they end with the test."""
    with ExitStack() as stack:
        numbers = itertools.count(1)

        def start(config: dict[str, Any]) -> Gateway:
            name = f"gateway-{next(numbers)}"
            path = tmp_path / f"{name}.json"
            path.write_text(json.dumps(config), "utf-8")
            return gateway.start_gateway(stack, path, tmp_path / f"{name}.log")

        yield start
