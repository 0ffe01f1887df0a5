"""The simulator against a real engine: record a run, fit the model's numbers, replay, compare.

llama.cpp serves the demo's tiny chat model on one thread. 1, 2, 4 and 8 workers ask without a
pause, in interleaved rounds; each request has a prompt and an answer of random length. The model is
fitted to 1 and 8 workers only. Then the same requests, in the same order, are replayed in the
simulator at every level: 2 and 4 have not been seen by the fit.

    python -m bench.sim_fit
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from math import log
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

import aiohttp

from forebay.demo.engines import start_chat_engine
from forebay.demo.processes import Processes
from forebay.demo.words import WORDS
from forebay.sim import Closed, LlmSpec, Scenario, Size, endpoint, percentile

from . import report, results

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.demo.engines import Engine

_LEVELS = (1, 2, 4, 8)
_FITTED = (1, 8)
_SLOTS = 8
_PROMPT_WORDS = (20, 60, 120, 240)
_ANSWER_TOKENS = (16, 32, 64, 96)
_FIGURES = ("first token p50", "first token p95", "output token p50", "tokens per second")
# What is fitted, and where the search begins, seconds.
_START = {"token_s": 1e-3, "prompt_token_s": 1e-3, "overhead_s": 1e-3, "prefill_overhead_s": 1e-3}


@dataclass(frozen=True, slots=True)
class Seen:
    """One real request."""

    size: Size
    first_token_s: float
    output_token_s: float
    ended_at: float


@dataclass(slots=True)
class Level:
    """What a number of workers saw, over all rounds."""

    seconds: float = 0.0
    seen: list[Seen] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """The figures that are compared."""
        return _figures(
            [one.first_token_s for one in self.seen],
            [one.output_token_s for one in self.seen],
            sum(one.size.output_tokens for one in self.seen) / self.seconds,
        )


def _figures(first_s: list[float], token_s: list[float], per_s: float) -> dict[str, float]:
    values = (percentile(first_s, 0.5), percentile(first_s, 0.95), percentile(token_s, 0.5), per_s)
    return dict(zip(_FIGURES, values, strict=True))


# -- the real run ----------------------------------------------------------------------------------


async def _ask(session: aiohttp.ClientSession, engine: Engine, rng: random.Random) -> Seen:
    words, tokens = rng.choice(_PROMPT_WORDS), rng.choice(_ANSWER_TOKENS)
    body = {
        "model": engine.model,
        "messages": [{"role": "user", "content": " ".join(rng.choices(WORDS, k=words))}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    asked_at, arrivals, prompt = time.monotonic(), [], 0
    async with session.post(f"{engine.base_url}/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if any(choice["delta"].get("content") for choice in event["choices"]):
                    arrivals.append(time.monotonic())
                if usage := event.get("usage"):
                    prompt = usage["prompt_tokens"]
    first_at, last_at = arrivals[0], arrivals[-1]
    each_s = (last_at - first_at) / (tokens - 1)
    return Seen(Size(prompt, tokens), first_at - asked_at, each_s, time.monotonic())


async def _load(engine: Engine, workers: int, seconds: float, rng: random.Random) -> list[Seen]:
    """Let workers ask for some time; what ends later does not count."""
    begin = time.monotonic()
    seen: list[Seen] = []

    async def work(session: aiohttp.ClientSession) -> None:
        while time.monotonic() < begin + seconds:
            seen.append(await _ask(session, engine, rng))

    # The engine closes connections after a stream although it announces to keep them.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(work(session) for _ in range(workers)))
    return [one for one in seen if one.ended_at <= begin + seconds]


def record(rounds: int, seconds: float) -> dict[int, Level]:
    """Run the real engine at every level, round by round."""
    levels: dict[int, Level] = defaultdict(Level)
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as folder, Processes(Path(folder)) as processes:
        engine = start_chat_engine(processes)
        asyncio.run(_load(engine, 2, 1.0, rng))  # the first answers pay for loading
        for _ in range(rounds):
            for workers in _LEVELS:
                levels[workers].seen += asyncio.run(_load(engine, workers, seconds, rng))
                levels[workers].seconds += seconds
    return levels


# -- fit and replay --------------------------------------------------------------------------------


def replay(spec: LlmSpec, workers: int, level: Level) -> dict[str, float]:
    """Ask the simulated engine for the same sizes, in the same order, for as long."""
    sizes = [one.size for one in level.seen]
    rest = iter(sizes * 3)
    chat = endpoint("chat", ceiling=_SLOTS)
    scenario = Scenario(
        servers={chat: spec},
        loads=[Closed(model="chat", workers=workers, sizes=lambda _rng, _now: next(rest))],
    )
    done = scenario.run(level.seconds).select()
    return _figures(
        [one.first_token_s for one in done.answered],
        [one.output_token_s for one in done.answered],
        done.work_per_s,
    )


def _loss(spec: LlmSpec, levels: dict[int, Level]) -> float:
    """Mean squared logarithmic error over the levels that are fitted."""
    errors = []
    for workers in _FITTED:
        real, simulated = levels[workers].figures(), replay(spec, workers, levels[workers])
        errors += [log(simulated[name] / real[name]) ** 2 for name in _FIGURES]
    return fmean(errors)


def fit(levels: dict[int, Level]) -> LlmSpec:
    """Find the numbers of the model: one after the other, in ever smaller steps."""
    spec = LlmSpec(
        weights_s=0.0,
        context_token_s=0.0,
        max_sequences=_SLOTS,
        max_step_tokens=2048,
        kv_blocks=_SLOTS * 64,
        **_START,
    )
    best, step = _loss(spec, levels), 2.0
    while step > 1.005:
        moved = False
        for name in _START:
            for factor in (step, 1 / step):
                tried = replace(spec, **{name: getattr(spec, name) * factor})
                loss = _loss(tried, levels)
                if loss < best:
                    spec, best, moved = tried, loss, True
        if not moved:
            step = step**0.5
    return spec


def compare(spec: LlmSpec, levels: dict[int, Level]) -> dict[str, dict[str, dict[str, float]]]:
    """Return level → figure → what was real, what is simulated, and the error in per cent."""
    table = {}
    for workers, level in levels.items():
        real, simulated = level.figures(), replay(spec, workers, level)
        table[str(workers)] = {
            name: {
                "real": real[name],
                "simulated": simulated[name],
                "error_percent": 100 * (simulated[name] / real[name] - 1),
            }
            for name in _FIGURES
        }
    return table


def _summary(table: dict[str, dict[str, dict[str, float]]]) -> list[results.Result]:
    def errors(levels: Iterable[int]) -> list[float]:
        return [abs(row["error_percent"]) for n in levels for row in table[str(n)].values()]

    def noted(measure: str, percent: float) -> results.Result:
        return results.noted(measure, percent, "%", against="llama.cpp, 8 slots, one thread")

    unseen = errors(n for n in _LEVELS if n not in _FITTED)
    return [
        noted("median error, 2 and 4 workers (not fitted)", median(unseen)),
        noted("largest error, 2 and 4 workers (not fitted)", max(unseen)),
        noted("median error, 1 and 8 workers (fitted)", median(errors(_FITTED))),
        noted("largest error, 1 and 8 workers (fitted)", max(errors(_FITTED))),
    ]


def main() -> None:
    """Record, fit, replay and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each level in a round")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    levels = record(arguments.rounds, arguments.seconds)
    spec = fit(levels)
    table = compare(spec, levels)
    print(json.dumps({"spec": asdict(spec), "levels": table}, indent=2))
    if not arguments.dry:
        path = results.write(
            "sim_fit",
            command="make bench-sim-fit (python -m bench.sim_fit)",
            results=_summary(table),
            details={
                "levels": table,
                "requests": {str(n): len(level.seen) for n, level in levels.items()},
                "spec": asdict(spec),
            },
        )
        report.update()
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
