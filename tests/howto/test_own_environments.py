"""How-tos for what is too large for this project's environment: each has its own.

`make test-howto` makes them, below .cache, and runs these.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from forebay.emulator.faults import Slow

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        os.environ.get("FOREBAY_HOWTO") != "1",
        reason="installs LlamaIndex, LiteLLM and Ray, 900 MB: make test-howto",
    ),
]

ROOT = Path(__file__).parents[2]
LLAMA_INDEX = (
    "llama-index-core==0.14.25",
    "llama-index-embeddings-openai-like==0.4.0",
    "llama-index-llms-openai-like==0.8.1",
)
LITELLM = ("litellm==1.110.2",)
RAY = ("ray[data]==2.60.0",)
# Ray tells its makers of its use otherwise, and writes a token into the home folder.
ALONE = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


def environment(name: str, *packages: str) -> Path:
    """The Python of an environment that has these packages, and Forebay as it is here."""
    uv = shutil.which("uv") or str(ROOT / ".cache" / "uv" / "bin" / "uv")
    folder = ROOT / ".cache" / "howto" / name
    subprocess.run([uv, "venv", "--quiet", "--allow-existing", folder], check=True)
    python = folder / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--python", python, "--editable", ROOT]
    subprocess.run([*install, *packages], check=True, cwd=folder)
    return python


async def test_llama_index(run, host, config) -> None:
    python = environment("llama-index", *LLAMA_INDEX)
    told = await run("llama_index_app.py", config, "chat", "embedding", python=python, quiet=False)
    assert told.splitlines() == [
        "Note 7: gate 7 of the forebay opens at 7 metres.",
        "an answer of 16 words",
    ]
    assert host.record()["embedding"]["max_inflight"] == 4


async def test_litellm(run, host, config) -> None:
    python = environment("litellm", *LITELLM)
    told = await run("litellm_app.py", config, "chat", "embedding", python=python, quiet=False)
    assert told.splitlines() == ["an answer of 16 words", "320 notes embedded"]
    assert host.record()["embedding"]["max_inflight"] == 4


async def test_ray(run, host, config, tmp_path) -> None:
    python = environment("ray", *RAY)
    # Ray takes its time between batches, and they must meet.
    host.faults.add(Slow(engine="embedding", factor=10))
    lines, vectors = tmp_path / "lines.txt", tmp_path / "vectors"
    lines.write_text("".join(f"line {n}\n" for n in range(640)))
    ask = (config, "embedding", lines, vectors)
    told = await run("ray_data.py", *ask, python=python, quiet=False, **ALONE)
    assert told.splitlines()[-1] == "640 lines embedded"
    assert host.record()["embedding"]["max_inflight"] == 4
