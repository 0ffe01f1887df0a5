"""vLLM with a tiny model and 8 sequences: one person who chats, and 32 bulk generations (`flex`).

No number is configured but the target. It is the engine tests' vLLM: `make test-vllm` installs it.

    python -m bench.protection_vllm [--rounds 3] [--seconds 15]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.demo.asking import Client, Target
from forebay.demo.gateway import start_gateway
from forebay.demo.processes import Processes

from . import report, results
from .beside import Load, Phase, measure, prompt
from .proc import ROOT, free_port, tree

if TYPE_CHECKING:
    import random

_WORKERS, _SEQUENCES = 32, 8
_BULK_TOKENS, _WORDS = 128, 16
_START_S = 300
_LEARN_S = 120.0
_GOALS = {1.6: (1.7, 0.75), 1.4: (1.5, 0.60)}  # by target: chat at most, bulk at least
_ON = "vLLM on a core, tiny model, 8 sequences; one chat user and 32 bulk generations"
# Two of vLLM's processes yield to one another in a loop while there is work. On both cores of this
# machine that keeps everybody else off them for seconds; on one, it is a GPU that leaves the other
# core to its server, Forebay and whoever asks.
_ENGINE = "VLLM::"
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


class EndlessClient(Client):
    """Asks for answers of a certain length: a random model ends when it likes."""

    def _chat_body(self, prompt: str, tokens: int) -> dict[str, Any]:
        return super()._chat_body(prompt, tokens) | {"ignore_eos": True}


async def generate(client: Client, rng: random.Random, *, tier: str | None) -> int:
    """Generate in bulk."""
    return await client.generate(prompt(rng, _WORDS), _BULK_TOKENS, tier)


def start_vllm(processes: Processes, folder: Path) -> str:
    """Serve the tiny model; returns where."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    home, model = cache / "forebay" / "vllm", folder / "model"
    subprocess.run([ROOT / "scripts" / "install_vllm.sh", home], check=True)
    maker = ROOT / "tests" / "engines" / "vllm" / "make_tiny_model.py"
    environment = os.environ | _ENVIRONMENT
    subprocess.run([home / "bin" / "python", maker, model], check=True, env=environment)
    port = free_port()
    command = [str(home / "bin" / "vllm"), "serve", str(model), "--served-model-name", "tiny"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16"]
    command += ["--max-model-len", "4096", "--enforce-eager", "--max-num-seqs", str(_SEQUENCES)]
    root = f"http://127.0.0.1:{port}"
    server = processes.start("vllm", command, _ENVIRONMENT)
    server.await_ok(f"{root}/health", _START_S)
    engine, others = sorted(os.sched_getaffinity(0))[:2]
    for pid in (os.getpid(), *tree(server.pid)):
        computes = Path(f"/proc/{pid}/comm").read_text("utf-8").startswith(_ENGINE)
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {engine if computes else others})
    return root


def run(rounds: int, seconds: float, folder: Path) -> dict[str, Phase]:
    """Start everything and run all rounds, for one target after the other."""
    found: dict[str, Phase] = {}
    with Processes(folder) as processes:
        root = start_vllm(processes, folder)
        direct = Target(f"{root}/v1", f"{root}/v1", "tiny", "tiny")
        for target in _GOALS:
            config = {
                "chat_models": [{"id": "tiny", "base_url": root, "gpu_group": "gpu"}],
                "forebay": {"protection": {"target": target}},
            }
            gateway = start_gateway(processes, config, f"gateway-{target:g}")
            through = Target(gateway.base_url, gateway.base_url, "tiny", "tiny")
            for name, phase, tier in (
                ("chat alone", Phase(direct, chat=True, workers=0), None),
                ("both, straight", Phase(direct, chat=True, workers=_WORKERS), None),
                ("both, through Forebay", Phase(through, chat=True, workers=_WORKERS), "flex"),
            ):
                found[f"{name}, target {target:g}"] = phase
                work = partial(generate, tier=tier)
                load = Load(32, _WORDS, work, client=EndlessClient)
                learn_s = _LEARN_S if tier else 0.0
                measure({name: phase}, load, rounds=rounds, seconds=seconds, learn_s=learn_s)
            print(gateway.log.read_text("utf-8"), file=sys.stderr)
    return found


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        phases = run(arguments.rounds, arguments.seconds, Path(folder))
    rows = []
    for target, (chat, bulk) in _GOALS.items():
        alone, straight, through = (
            phases[f"{name}, target {target:g}"]
            for name in ("chat alone", "both, straight", "both, through Forebay")
        )
        ratio = through.first_token_s() / alone.first_token_s()
        kept = through.work_per_s / straight.work_per_s
        free = straight.first_token_s() / alone.first_token_s()
        rows += [
            results.at_most(
                f"chat's first token p95, target {target:g} / alone", ratio, "×", chat, against=_ON
            ),
            results.at_least(
                f"bulk tokens, target {target:g} / ungoverned", kept, "×", bulk, against=_ON
            ),
            results.noted(
                f"chat's first token p95, ungoverned / alone ({target:g})", free, "×", against=_ON
            ),
        ]
    details = {name: phase.as_dict() for name, phase in phases.items()}
    path = results.write(
        "protection_vllm", command="make bench-protection-vllm", results=rows, details=details
    )
    report.update()
    print(path.read_text("utf-8"))


if __name__ == "__main__":
    main()
