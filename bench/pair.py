"""Chat on one engine and embeddings on another one that share a GPU, protected or not."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.demo.asking import Target
from forebay.demo.gateway import start_gateway
from forebay.demo.processes import Processes

from . import report, results
from .beside import Load, Phase, measure, prompt

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from forebay.demo.asking import Client
    from forebay.demo.engines import Engine

TARGET = 1.25
_WORKERS = 4
_TEXTS, _WORDS = 4, 100
# One text a piece: a pause needs a grain that is shorter than chat's answers.
_PIECE_TOKENS = 160
_LEARN_S = 90.0
_ANSWER_TOKENS, _QUESTION_WORDS = 32, 12


async def embed(client: Client, rng: random.Random) -> int:
    """Embed some texts."""
    return await client.embed([prompt(rng, _WORDS) for _ in range(_TEXTS)])


def main(
    name: str,
    on: str,
    engines: Callable[[Processes], tuple[Engine, Engine]],
    client: type[Client],
) -> None:
    """Measure one pair, and write the figures.

    Args:
        name: of the benchmark.
        on: what it is measured on.
        engines: starts chat's engine and that of the embeddings.
        client: sends chat's requests.
    """
    parser = argparse.ArgumentParser(description=on)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=12.0)
    options = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder, Processes(Path(folder)) as processes:
        phases = run(processes, *engines(processes), client, **options)
    path = results.write(
        name,
        command=f"make bench-{name.replace('_', '-')}",
        results=rows(phases, on),
        details={phase: figures.as_dict() for phase, figures in phases.items()},
    )
    report.update()
    print(path.read_text("utf-8"))


def run(  # noqa: PLR0913 - a pair, and how long
    processes: Processes,
    chat: Engine,
    embedding: Engine,
    client: type[Client],
    *,
    rounds: int,
    seconds: float,
) -> dict[str, Phase]:
    """Start a gateway and run all rounds. No number is configured but the target."""
    on_gpu: dict[str, Any] = {"gpu_group": "gpu"}
    config = {
        "chat_models": [{"id": chat.model, "base_url": chat.root} | on_gpu],
        "embedding_models": [
            {"id": embedding.model, "base_url": embedding.root, "piece_tokens": _PIECE_TOKENS}
            | on_gpu
        ],
        "forebay": {"protection": {"target": TARGET}},
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
    load = Load(_ANSWER_TOKENS, _QUESTION_WORDS, embed, client=client)
    measure(phases, load, rounds=rounds, seconds=seconds, learn_s=_LEARN_S)
    print(gateway.log.read_text("utf-8"))
    return phases


def rows(phases: dict[str, Phase], on: str) -> list[results.Result]:
    """The table of one pair."""
    alone, storm, straight, idle, through = phases.values()
    return [
        results.at_least(
            "chat's answer p95 beside embeddings, ungoverned / alone",
            straight.total_s() / alone.total_s(),
            "×",
            1.7,
            against=on,
        ),
        results.at_most(
            "chat's answer p95 beside embeddings, through Forebay / alone",
            through.total_s() / alone.total_s(),
            "×",
            TARGET + 0.10,
            against=on,
        ),
        results.at_least(
            "embeddings while chat is busy, through Forebay / alone",
            through.work_per_s / storm.work_per_s,
            "×",
            0.25,
            against=on,
        ),
        results.at_least(
            "embeddings while chat is idle, through Forebay / alone",
            idle.work_per_s / storm.work_per_s,
            "×",
            0.9,
            against=on,
        ),
        results.noted(
            "chat's first token p95 beside embeddings, ungoverned / alone",
            straight.first_token_s() / alone.first_token_s(),
            "×",
            against=on,
        ),
        results.noted(
            "chat's first token p95 beside embeddings, through Forebay / alone",
            through.first_token_s() / alone.first_token_s(),
            "×",
            against=on,
        ),
    ]
