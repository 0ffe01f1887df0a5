"""Real vLLM on this machine's CPUs; only where FOREBAY_VLLM=1 asks for it, as it takes minutes.

``scripts/install_vllm.sh`` installs it, once, into a folder of its own in the user's cache.
"""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.demo.processes import ChildProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

if os.environ.get("FOREBAY_VLLM") != "1":
    collect_ignore_glob = ["test_*.py"]

ROOT = Path(__file__).parents[3]
MAKE_MODEL = Path(__file__).with_name("make_tiny_model.py")
START_S = 300
SEQUENCES = 8
UNFINISHED = 12
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


@dataclass(frozen=True)
class Vllm:
    """A running server.

    Args:
        root: where it listens.
        model: the served model's id.
    """

    root: str
    model: str

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """vLLM with a tiny model: 8 sequences at once, 12 with those that wait, then 503."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "forebay" / "vllm"
    subprocess.run([ROOT / "scripts" / "install_vllm.sh", home], check=True)
    folder = tmp_path_factory.mktemp("vllm")
    model = folder / "model"
    subprocess.run(
        [home / "bin" / "python", MAKE_MODEL, model], check=True, env={**os.environ, **ENVIRONMENT}
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(home / "bin" / "vllm"), "serve", str(model), "--served-model-name", "tiny"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16"]
    command += ["--max-model-len", "4096", "--enforce-eager"]
    command += ["--max-num-seqs", str(SEQUENCES), "--max-num-queued-reqs", str(UNFINISHED)]
    with ExitStack() as stack:
        log = folder / "vllm.log"
        server = stack.enter_context(ChildProcess("vLLM", command, log, ENVIRONMENT))
        root = f"http://127.0.0.1:{port}"
        server.await_ok(f"{root}/health", START_S)
        yield Vllm(root, "tiny")
