"""The example of the documentation is this one, and it runs."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

import forebay
from forebay.core.model import Reason
from forebay.emulator import ChatSpec, EmbeddingSpec, Emulator, EmulatorSpec
from support.configs import entry

_EXAMPLES = Path(__file__).parent / "examples"
# What each prints.
EXAMPLES = {
    "http_client.py": b"True\n(1000, 64)\n",
    "embed_corpus.py": b"100 embedded, 0 failed\n",
    "embed_corpus_sync.py": b"64\n" * 100,
}
PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text("utf-8")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_page_shows_the_example(name) -> None:
    text = (_EXAMPLES / name).read_text("utf-8")
    assert f"```python\n{text}```" in PAGE


@pytest.mark.anyio
@pytest.mark.parametrize("name", EXAMPLES)
async def test_the_example_runs(write, name) -> None:
    spec = EmulatorSpec(
        chat=ChatSpec(model="qwen3"),
        embedding=EmbeddingSpec(model="bge-m3", weights_s=0.001, overhead_s=0.003),
    )
    async with Emulator(spec).running() as host:
        path = write(
            {
                "chat_models": [entry("qwen3", host.chat_url)],
                "embedding_models": [entry("bge-m3", host.embed_url, engine="tei")],
            }
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, _EXAMPLES / name, path, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await asyncio.wait_for(process.communicate(), timeout=60)
    assert process.returncode == 0
    assert output == EXAMPLES[name]


def test_every_reason_is_on_the_page() -> None:
    for reason in Reason:
        assert f"`{reason.value}`" in PAGE


def test_every_method_that_the_page_calls_exists() -> None:
    for name in re.findall(r"\bfb\.(\w+)", PAGE):
        assert hasattr(forebay.Session, name)
    for name in re.findall(r"\blease\.(\w+)", PAGE):
        assert hasattr(forebay.Lease, name)
    for name in re.findall(r"\bforebay\.([A-Z]\w+)", PAGE):
        assert name in forebay.__all__
