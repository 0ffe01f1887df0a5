"""vLLM with a tiny model and 8 sequences: one person who chats, and 32 bulk generations (`flex`).

No number is configured but the target. It is the engine tests' vLLM: `make test-vllm` installs it.

    python -m bench.protection_vllm [--rounds 3] [--seconds 15]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.demo.asking import Target
from forebay.demo.gateway import start_gateway
from forebay.demo.processes import Processes

from . import report, results
from .beside import EndlessClient, Load, Phase, measure, prompt
from .heavy_engines import VLLM_MODEL, start_vllm

if TYPE_CHECKING:
    import random

    from forebay.demo.asking import Client

_WORKERS = 32
_BULK_TOKENS, _WORDS = 128, 16
_LEARN_S = 120.0
_GOALS = {1.6: (1.7, 0.75), 1.4: (1.5, 0.60)}  # by target: chat at most, bulk at least
_ON = "vLLM on a core, tiny model, 8 sequences; one chat user and 32 bulk generations"


async def generate(client: Client, rng: random.Random, *, tier: str | None) -> int:
    """Generate in bulk."""
    return await client.generate(prompt(rng, _WORDS), _BULK_TOKENS, tier)


def run(rounds: int, seconds: float, folder: Path) -> dict[str, Phase]:
    """Start everything and run all rounds, for one target after the other."""
    found: dict[str, Phase] = {}
    with Processes(folder) as processes:
        root = start_vllm(processes, folder)
        direct = Target(f"{root}/v1", f"{root}/v1", VLLM_MODEL, VLLM_MODEL)
        for target in _GOALS:
            config = {
                "chat_models": [{"id": VLLM_MODEL, "base_url": root, "gpu_group": "gpu"}],
                "forebay": {"protection": {"target": target}},
            }
            gateway = start_gateway(processes, config, f"gateway-{target:g}")
            through = Target(gateway.base_url, gateway.base_url, VLLM_MODEL, VLLM_MODEL)
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
