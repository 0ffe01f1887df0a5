"""llama.cpp's chat (one thread) beside MiniLM's embeddings (two threads), on two cores.

No budget and no number is configured: only that chat is to be protected.

    python -m bench.protection_llama [--rounds 4] [--seconds 12]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.demo.asking import Client, Target
from forebay.demo.engines import start_chat_engine, start_embedding_engine
from forebay.demo.gateway import start_gateway
from forebay.demo.processes import Processes

from . import report, results
from .beside import Load, Phase, measure, prompt

if TYPE_CHECKING:
    import random

_WORKERS = 4
_TEXTS, _WORDS = 4, 100
# One text a piece: a pause needs a grain that is shorter than chat's answers.
_PIECE_TOKENS = 160
_LEARN_S = 90.0
_GROUP = "gpu"
_ON = "llama.cpp chat (1 thread) and MiniLM (2 threads) on 2 cores; target 1.25"


async def embed(client: Client, rng: random.Random) -> int:
    """Embed some texts."""
    return await client.embed([prompt(rng, _WORDS) for _ in range(_TEXTS)])


def run(rounds: int, seconds: float, folder: Path) -> dict[str, Phase]:
    """Start everything and run all rounds."""
    with Processes(folder) as processes:
        chat, embedding = start_chat_engine(processes), start_embedding_engine(processes)
        config = {
            "chat_models": [{"id": chat.model, "base_url": chat.root, "gpu_group": _GROUP}],
            "embedding_models": [
                {
                    "id": embedding.model,
                    "base_url": embedding.root,
                    "gpu_group": _GROUP,
                    "piece_tokens": _PIECE_TOKENS,
                }
            ],
            "forebay": {"protection": {"target": 1.25}},
        }
        gateway = start_gateway(processes, config)
        models = chat.model, embedding.model
        direct = Target(chat.base_url, embedding.base_url, *models)
        governed = Target(gateway.base_url, gateway.base_url, *models)
        phases = {
            "chat alone": Phase(direct, chat=True, workers=0),
            "embeddings alone": Phase(direct, chat=False, workers=_WORKERS),
            "both, straight": Phase(direct, chat=True, workers=_WORKERS),
            "embeddings alone, through Forebay": Phase(governed, chat=False, workers=_WORKERS),
            "both, through Forebay": Phase(governed, chat=True, workers=_WORKERS),
        }
        load = Load(answer_tokens=32, prompt_words=12, work=embed)
        measure(phases, load, rounds=rounds, seconds=seconds, learn_s=_LEARN_S)
        print(gateway.log.read_text("utf-8"))
    return phases


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=12.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        phases = run(arguments.rounds, arguments.seconds, Path(folder))
    alone, storm, straight, idle, through = phases.values()
    path = results.write(
        "protection_llama",
        command="make bench-protection-llama",
        results=[
            results.at_least(
                "chat's answer p95 beside embeddings, ungoverned / alone",
                straight.total_s() / alone.total_s(),
                "×",
                1.7,
                against=_ON,
            ),
            results.at_most(
                "chat's answer p95 beside embeddings, through Forebay / alone",
                through.total_s() / alone.total_s(),
                "×",
                1.35,
                against=_ON,
            ),
            results.at_least(
                "embeddings while chat is busy, through Forebay / alone",
                through.work_per_s / storm.work_per_s,
                "×",
                0.25,
                against=_ON,
            ),
            results.at_least(
                "embeddings while chat is idle, through Forebay / alone",
                idle.work_per_s / storm.work_per_s,
                "×",
                0.9,
                against=_ON,
            ),
            results.noted(
                "chat's first token p95 beside embeddings, ungoverned / alone",
                straight.first_token_s() / alone.first_token_s(),
                "×",
                against=_ON,
            ),
            results.noted(
                "chat's first token p95 beside embeddings, through Forebay / alone",
                through.first_token_s() / alone.first_token_s(),
                "×",
                against=_ON,
            ),
        ],
        details={name: phase.as_dict() for name, phase in phases.items()},
    )
    report.update()
    print(path.read_text("utf-8"))


if __name__ == "__main__":
    main()
