"""Chat under an embedding storm, on the emulated GPU behind real HTTP, without Forebay and with it.

Rounds of four phases are interleaved: chat alone, the storm alone, both straight at the engines,
both through Forebay. Chat is light: one person, who thinks between questions. Percentiles are
exact, over all rounds.

    python -m bench.protection [--rounds 4] [--seconds 15]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from forebay.demo.asking import Client, Target
from forebay.demo.gateway import start_gateway
from forebay.demo.processes import Processes
from forebay.demo.report import percentile

from . import report, results

_WORKERS = 32
_TEXTS = 16
_THINK_S = (0.3, 0.9)
_ANSWER_TOKENS = 32
_WARM_UP_S = 3.0
_GROUP = "gpu"
_BUDGET = 5
_ON = "the emulated GPU"


@dataclass
class Phase:
    """What one way of running the load gave, over all rounds."""

    chat: bool
    storm: bool
    governed: bool
    first_token_s: list[float] = field(default_factory=list)
    texts: int = 0
    seconds: float = 0.0

    @property
    def p95_s(self) -> float:
        return percentile(self.first_token_s, 0.95)

    @property
    def texts_per_s(self) -> float:
        return self.texts / self.seconds


async def run_phase(phase: Phase, target: Target, seconds: float, rng: random.Random) -> None:
    """Put the load on for a warm-up and `seconds`; only the latter counts."""
    counting_from = time.monotonic() + _WARM_UP_S
    until = counting_from + seconds

    async def chat(client: Client) -> None:
        while (asked_at := time.monotonic()) < until:
            answer = await client.chat(f"{rng.randrange(10**9)} tell me", _ANSWER_TOKENS)
            if asked_at >= counting_from:
                phase.first_token_s.append(answer.first_token_s)
            await asyncio.sleep(rng.uniform(*_THINK_S))

    async def embed(client: Client) -> None:
        while time.monotonic() < until:
            texts = [f"{rng.randrange(10**9)} " + "word " * 90 for _ in range(_TEXTS)]
            count = await client.embed(texts)
            if counting_from <= time.monotonic() <= until:
                phase.texts += count

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        client = Client(session, target)
        if phase.chat:
            group.create_task(chat(client))
        if phase.storm:
            for _ in range(_WORKERS):
                group.create_task(embed(client))
    phase.seconds += seconds


def start(processes: Processes) -> tuple[Target, Target]:
    """Start the emulator and the gateway; returns the engines without it, and with it."""
    command = [sys.executable, "-m", "forebay", "emulate", "--json", "--port", "0"]
    emulator = processes.start("emulator", command)
    urls = json.loads(emulator.await_line(r"(\{.*\})"))
    chat = {"id": urls["chat_model"], "base_url": urls["chat_url"], "gpu_group": _GROUP}
    embedding = {"id": urls["embed_model"], "base_url": urls["embed_url"], "gpu_group": _GROUP}
    config = {
        "chat_models": [chat],
        "embedding_models": [embedding],
        "GPU_CONCURRENCY_BUDGETS": {_GROUP: _BUDGET},
    }
    gateway = start_gateway(processes, config)
    models = urls["chat_model"], urls["embed_model"]
    return (
        Target(urls["chat_url"], urls["embed_url"], *models),
        Target(gateway.base_url, gateway.base_url, *models),
    )


def measure(rounds: int, seconds: float) -> dict[str, Phase]:
    """Run all rounds."""
    phases = {
        "chat alone": Phase(chat=True, storm=False, governed=False),
        "storm alone": Phase(chat=False, storm=True, governed=False),
        "both, straight": Phase(chat=True, storm=True, governed=False),
        "both, through Forebay": Phase(chat=True, storm=True, governed=True),
    }
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as folder, Processes(Path(folder)) as processes:
        direct, governed = start(processes)
        for n in range(rounds):
            for name, phase in phases.items():
                print(f"round {n + 1}: {name}", file=sys.stderr)
                target = governed if phase.governed else direct
                asyncio.run(run_phase(phase, target, seconds, rng))
    return phases


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=15.0)
    arguments = parser.parse_args()
    phases = measure(arguments.rounds, arguments.seconds)
    alone, storm, straight, through = phases.values()
    kept = through.texts_per_s / storm.texts_per_s
    path = results.write(
        "protection",
        command="make bench-protection",
        results=[
            results.at_least(
                "chat's first token p95 under the storm without Forebay / alone",
                straight.p95_s / alone.p95_s,
                "×",
                3,
                against=_ON,
            ),
            results.at_most(
                "chat's first token p95 under the storm through Forebay / alone",
                through.p95_s / alone.p95_s,
                "×",
                1.5,
                against=_ON,
            ),
            results.at_least(
                "embeddings through Forebay beside light chat / storm alone",
                kept,
                "×",
                0.6,
                against=_ON,
            ),
        ],
        details={
            name: {
                "first_token_p95_s": phase.p95_s if phase.chat else None,
                "answers": len(phase.first_token_s),
                "texts_per_s": phase.texts_per_s,
            }
            for name, phase in phases.items()
        },
    )
    report.update()
    print(path.read_text("utf-8"))


if __name__ == "__main__":
    main()
