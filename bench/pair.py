"""Chat on one engine and embeddings on another one that share a GPU, protected or not."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
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
_QUESTION_WORDS = 12


@dataclass(frozen=True)
class Pair:
    """Two engines and their load.

    Args:
        name: of the benchmark.
        on: what it is measured on.
        engines: starts chat's engine and that of the embeddings.
        client: sends chat's requests.
        answer_tokens: length of chat's answers.
        texts: embedded in one request.
        words: of a text.
        piece_tokens: so large that a piece has one text: a pause needs a grain that is shorter than
            chat's answers.
        think_s: ways of chatting by their names: how long after an answer the next question comes,
            at least and at most.
        learn_s: how long each goes on before it counts.
    """

    name: str
    on: str
    engines: Callable[[Processes], tuple[Engine, Engine]]
    client: type[Client]
    answer_tokens: int
    texts: int
    words: int
    piece_tokens: int
    think_s: dict[str, tuple[float, float]]
    learn_s: float

    async def embed(self, client: Client, rng: random.Random) -> int:
        """Embed some texts."""
        return await client.embed([prompt(rng, self.words) for _ in range(self.texts)])


def main(pair: Pair) -> None:
    """Measure one pair, and write the figures."""
    parser = argparse.ArgumentParser(description=pair.on)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=12.0)
    options = vars(parser.parse_args())
    found: list[results.Result] = []
    details: dict[str, dict[str, float | int]] = {}
    with tempfile.TemporaryDirectory() as folder, Processes(Path(folder)) as processes:
        engines = pair.engines(processes)
        for way, think_s in pair.think_s.items():
            phases = run(pair, think_s, processes, *engines, **options)
            found += rows(way, phases, pair.on)
            details |= {f"{way}{name}": phase.as_dict() for name, phase in phases.items()}
    path = results.write(
        pair.name,
        command=f"make bench-{pair.name.replace('_', '-')}",
        results=found,
        details=details,
    )
    report.update()
    print(path.read_text("utf-8"))


def run(  # noqa: PLR0913 - a pair, and how long
    pair: Pair,
    think_s: tuple[float, float],
    processes: Processes,
    chat: Engine,
    embedding: Engine,
    *,
    rounds: int,
    seconds: float,
) -> dict[str, Phase]:
    """Start a gateway and run all rounds. No number is configured but the target."""
    on_gpu: dict[str, Any] = {"gpu_group": "gpu"}
    config = {
        "chat_models": [{"id": chat.model, "base_url": chat.root} | on_gpu],
        "embedding_models": [
            {"id": embedding.model, "base_url": embedding.root, "piece_tokens": pair.piece_tokens}
            | on_gpu
        ],
        "forebay": {"protection": {"target": TARGET}},
    }
    gateway = start_gateway(processes, config, f"gateway-{think_s[0]:g}")
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
    load = Load(pair.answer_tokens, _QUESTION_WORDS, pair.embed, think_s, pair.client)
    measure(phases, load, rounds=rounds, seconds=seconds, learn_s=pair.learn_s)
    print(gateway.log.read_text("utf-8"))
    return phases


def rows(way: str, phases: dict[str, Phase], on: str) -> list[results.Result]:
    """The table of one pair and way of chatting."""
    alone, storm, straight, idle, through = phases.values()
    return [
        results.at_least(
            f"{way}chat's answer p95 beside embeddings, ungoverned / alone",
            straight.total_s() / alone.total_s(),
            "×",
            1.7,
            against=on,
        ),
        results.at_most(
            f"{way}chat's answer p95 beside embeddings, through Forebay / alone",
            through.total_s() / alone.total_s(),
            "×",
            TARGET + 0.10,
            against=on,
        ),
        results.at_least(
            f"{way}embeddings while chat is busy, through Forebay / alone",
            through.work_per_s / storm.work_per_s,
            "×",
            0.25,
            against=on,
        ),
        results.at_least(
            f"{way}embeddings while chat is idle, through Forebay / alone",
            idle.work_per_s / storm.work_per_s,
            "×",
            0.9,
            against=on,
        ),
        results.noted(
            f"{way}chat's first token p95 beside embeddings, ungoverned / alone",
            straight.first_token_s() / alone.first_token_s(),
            "×",
            against=on,
        ),
        results.noted(
            f"{way}chat's first token p95 beside embeddings, through Forebay / alone",
            through.first_token_s() / alone.first_token_s(),
            "×",
            against=on,
        ),
    ]
