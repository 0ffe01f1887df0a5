from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from forebay.emulator import ChatSpec, EmbeddingSpec, Emulator, EmulatorSpec
from support.configs import entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from forebay.emulator import Host

# Ten times as quick as the default host, so that tests are.
QUICK = EmulatorSpec(
    chat=ChatSpec(weights_s=0.001, token_s=1e-5, overhead_s=0.0002, prefill_overhead_s=0.004),
    embedding=EmbeddingSpec(weights_s=0.001, token_s=2e-6, overhead_s=0.003, dimensions=8),
)


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with Emulator(QUICK).running() as running:
        yield running


@pytest.fixture
def write(tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    """Writes a configuration to a file."""

    def write(config: dict[str, Any]) -> Path:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return path

    return write


@pytest.fixture
def config(write) -> Callable[..., Path]:
    """A configuration of two models where nobody listens, for whoever needs only the slots."""

    def config(
        *, chat: int = 2, embedding: int = 2, budget: int | None = None, **forebay: Any
    ) -> Path:
        return write(
            {
                "chat_models": [
                    entry("chat", "http://127.0.0.1:9/v1", ceiling=chat, engine="unknown")
                ],
                "embedding_models": [
                    entry("embed", "http://127.0.0.2:9/v1", ceiling=embedding, engine="unknown")
                ],
                "forebay": {"limit": "fixed", **forebay},
                **({"GPU_CONCURRENCY_BUDGETS": {"gpu": budget}} if budget else {}),
            }
        )

    return config
