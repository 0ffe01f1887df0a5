"""One person who chats, and best-effort work beside them: alone, together, and through Forebay.

Rounds of phases are interleaved, so that whatever else the machine does falls on all of them alike.
Percentiles are exact, over all rounds. Forebay runs all the time and learns as it goes: the phases
through it begin with a first, longer one that does not count.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

from forebay.demo.asking import Answer, Client
from forebay.demo.report import percentile
from forebay.demo.words import WORDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forebay.demo.asking import Target

    # One piece of best-effort work; returns how much was done.
    Work = Callable[[Client, random.Random], Awaitable[int]]

_WARM_UP_S = 2.0


@dataclass
class Phase:
    """What one way of running the load gave, over all rounds.

    Args:
        target: where the models are.
        chat: whether the person asks.
        workers: how many work beside them, each with one request at a time.
    """

    target: Target
    chat: bool
    workers: int
    answers: list[Answer] = field(default_factory=list)
    work: float = 0.0
    seconds: float = 0.0

    @property
    def work_per_s(self) -> float:
        return self.work / self.seconds

    def first_token_s(self, part: float = 0.95) -> float:
        return percentile([answer.first_token_s for answer in self.answers], part)

    def total_s(self, part: float = 0.95) -> float:
        return percentile([answer.total_s for answer in self.answers], part)

    def as_dict(self) -> dict[str, float | int]:
        """The figures behind the results."""
        shown: dict[str, float | int] = {"answers": len(self.answers)}
        shown["work_per_s"] = self.work_per_s
        if self.answers:
            shown |= {
                "first_token_p50_s": self.first_token_s(0.5),
                "first_token_p95_s": self.first_token_s(),
                "total_p50_s": self.total_s(0.5),
                "total_p95_s": self.total_s(),
            }
        return shown


@dataclass(frozen=True)
class Load:
    """Who asks for what.

    Args:
        answer_tokens: length of an answer to the person.
        prompt_words: length of a question.
        work: one piece of best-effort work.
        think_s: shortest and longest pause between an answer and the next question.
        client: sends the requests.
    """

    answer_tokens: int
    prompt_words: int
    work: Work
    think_s: tuple[float, float] = (0.02, 0.06)
    client: type[Client] = Client


class EndlessClient(Client):
    """Asks for answers of a certain length: a random model ends when it likes."""

    def _chat_body(self, prompt: str, tokens: int) -> dict[str, Any]:
        return super()._chat_body(prompt, tokens) | {"ignore_eos": True}


def prompt(rng: random.Random, words: int) -> str:
    """Make a text that no cache knows, from its first token on."""
    return " ".join([f"{rng.randrange(10**9):09}", *rng.choices(WORDS, k=words)])


def measure(
    phases: dict[str, Phase], load: Load, *, rounds: int, seconds: float, learn_s: float
) -> None:
    """Run all rounds; before them, the last phase for `learn_s` without counting."""
    rng = random.Random(7)
    *_, learning = phases.values()
    scratch = Phase(learning.target, chat=True, workers=learning.workers)
    print(f"learning, {learn_s:g} s", file=sys.stderr)
    asyncio.run(_run(scratch, load, learn_s, rng))
    for n in range(rounds):
        for name, phase in phases.items():
            asyncio.run(_run(phase, load, seconds, rng))
            print(f"round {n + 1}: {name}: {phase.as_dict()}", file=sys.stderr)


async def _run(phase: Phase, load: Load, seconds: float, rng: random.Random) -> None:
    """Put the load on for a warm-up and `seconds`; only the latter counts."""
    counting_from = time.monotonic() + _WARM_UP_S
    until = counting_from + seconds

    async def chat(client: Client) -> None:
        while (asked_at := time.monotonic()) < until:
            answer = await client.chat(prompt(rng, load.prompt_words), load.answer_tokens)
            if asked_at >= counting_from:
                phase.answers.append(answer)
            await asyncio.sleep(rng.uniform(*load.think_s))

    async def work(client: Client) -> None:
        while (started_at := time.monotonic()) < until:
            amount = await load.work(client, rng)
            ended_at = time.monotonic()
            inside_s = min(ended_at, until) - max(started_at, counting_from)
            phase.work += amount * max(0.0, inside_s) / (ended_at - started_at)

    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        client = load.client(session, phase.target)
        if phase.chat:
            group.create_task(chat(client))
        for _ in range(phase.workers):
            group.create_task(work(client))
    phase.seconds += seconds
