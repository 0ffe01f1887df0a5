"""The load of the demonstration: one person who chats, and a storm of bulk work beside them.

All of it is closed loop: each worker has one request in flight, as people and scripts have, so a
slow server is asked less. A phase warms up, measures until the person's last answer is in while
the storm goes on, then drains: nothing of it is left when the next one starts. Bulk work counts
by the part of each request that lies in the measured time.

The client shares the cores with the engines that it measures, so it does as little as it can:
bulk work is not streamed, and nobody looks at what comes back.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp

from forebay.demo.asking import Answer, Client, RequestFailed, Target
from forebay.demo.words import WORDS
from forebay.errors import ForebayError

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

_PAUSE_AFTER_FAILURE_S = 0.2


@dataclass(frozen=True, slots=True)
class Workload:
    """Who asks for what. The chat model of the demonstration has one token a word.

    Args:
        chat_prompt_words: length of a question.
        chat_answer_tokens: length of an answer.
        chat_think_s: shortest and longest pause between an answer and the next question.
        bulk_workers: bulk generations asked for at once.
        bulk_prompt_words: length of a bulk prompt.
        bulk_answer_tokens: shortest and longest bulk answer.
        embedding_workers: embedding requests asked for at once.
        embedding_texts: texts in one request.
        embedding_words: length of a text.
    """

    chat_prompt_words: int = 12
    chat_answer_tokens: int = 32
    chat_think_s: tuple[float, float] = (0.05, 0.15)
    bulk_workers: int = 8
    bulk_prompt_words: int = 16
    bulk_answer_tokens: tuple[int, int] = (96, 160)
    embedding_workers: int = 8
    embedding_texts: int = 6
    embedding_words: int = 115


@dataclass(frozen=True, slots=True)
class Phase:
    """One way of running the load.

    Args:
        target: where the models are.
        storm: whether the bulk work runs beside the chat.
        bulk_service_tier: ``service_tier`` of bulk generations; None sends none.
    """

    target: Target
    storm: bool
    bulk_service_tier: str | None = None


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """What one phase measured.

    Args:
        answers: the person's answers, in order.
        bulk_tokens_per_s: tokens that bulk generation got.
        embeddings_per_s: texts that were embedded.
        refused: requests that were told to come back later (429), and did.
        failures: why each request failed that failed in any other way.
    """

    answers: tuple[Answer, ...]
    bulk_tokens_per_s: float
    embeddings_per_s: float
    refused: int
    failures: tuple[str, ...]


class LoadFailed(ForebayError):  # noqa: N818 - names what happened, as the others do
    """The person, or a part of the storm, got no answer at all; the message has a failure."""


async def run_phase(
    phase: Phase, workload: Workload, rng: random.Random, *, warm_up_s: float, measure_s: float
) -> PhaseResult:
    """Put the load on and measure what it gets.

    Args:
        phase: the way to run it.
        workload: who asks for what.
        rng: makes prompts, lengths and pauses.
        warm_up_s: time under load before anything counts.
        measure_s: time in which the questions that count are asked.

    Raises:
        LoadFailed: somebody got no answer at all.
    """
    # One connection a request: llama.cpp announces keep-alive after a streamed answer, then
    # closes. Both ways are measured alike.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        load = _Load(phase, workload, rng, Client(session, phase.target))
        return await load.run(warm_up_s, measure_s)


@dataclass(frozen=True, slots=True)
class _Done:
    """A finished request and how much it yielded."""

    started_at: float
    ended_at: float
    units: int

    def units_between(self, start: float, end: float) -> float:
        overlap_s = min(self.ended_at, end) - max(self.started_at, start)
        return self.units * max(0.0, overlap_s) / (self.ended_at - self.started_at)


@dataclass(slots=True)
class _Load:
    """One phase while it runs: the person and the workers, and what came of them."""

    phase: Phase
    workload: Workload
    rng: random.Random
    client: Client
    stopping: bool = False
    failures: list[RequestFailed] = field(default_factory=list)

    async def run(self, warm_up_s: float, measure_s: float) -> PhaseResult:
        bulk: list[_Done] = []
        embeddings: list[_Done] = []
        async with asyncio.TaskGroup() as workers:
            if self.phase.storm:
                for _ in range(self.workload.bulk_workers):
                    workers.create_task(self._work(self._generate, bulk))
                for _ in range(self.workload.embedding_workers):
                    workers.create_task(self._work(self._embed, embeddings))
            await self._chat(warm_up_s)
            started_at = time.monotonic()
            answers = await self._chat(measure_s)
            ended_at = time.monotonic()
            self.stopping = True

        self._check_all_answered(answers, bulk, embeddings)
        measured_s = ended_at - started_at
        return PhaseResult(
            answers=tuple(answers),
            bulk_tokens_per_s=sum(d.units_between(started_at, ended_at) for d in bulk) / measured_s,
            embeddings_per_s=sum(d.units_between(started_at, ended_at) for d in embeddings)
            / measured_s,
            refused=self.client.refused,
            failures=tuple(str(failure) for failure in self.failures),
        )

    async def _chat(self, duration_s: float) -> list[Answer]:
        """One question after the other; the last is asked before the time is up."""
        answers: list[Answer] = []
        deadline = time.monotonic() + duration_s
        while time.monotonic() < deadline:
            try:
                prompt = self._prompt(self.workload.chat_prompt_words)
                answers.append(await self.client.chat(prompt, self.workload.chat_answer_tokens))
            except RequestFailed as failure:
                self.failures.append(failure)
            await asyncio.sleep(self.rng.uniform(*self.workload.chat_think_s))
        return answers

    async def _work(self, request: Callable[[], Awaitable[int]], done: list[_Done]) -> None:
        """One request after the other, until the phase ends."""
        while not self.stopping:
            started_at = time.monotonic()
            try:
                units = await request()
            except RequestFailed as failure:
                self.failures.append(failure)
                await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)
            else:
                done.append(_Done(started_at, time.monotonic(), units))

    async def _generate(self) -> int:
        tokens = self.rng.randint(*self.workload.bulk_answer_tokens)
        prompt = self._prompt(self.workload.bulk_prompt_words)
        return await self.client.generate(prompt, tokens, self.phase.bulk_service_tier)

    async def _embed(self) -> int:
        texts = [
            self._prompt(self.workload.embedding_words)
            for _ in range(self.workload.embedding_texts)
        ]
        return await self.client.embed(texts)

    def _prompt(self, words: int) -> str:
        # The number makes it differ from its first token on: no cache may answer for the engine.
        return " ".join([f"{self.rng.randrange(10**9):09}", *self.rng.choices(WORDS, k=words)])

    def _check_all_answered(
        self, answers: list[Answer], bulk: list[_Done], embeddings: list[_Done]
    ) -> None:
        if answers and ((bulk and embeddings) or not self.phase.storm):
            return
        raise LoadFailed(
            f"{self.phase.target.chat_url}, {self.phase.target.embedding_url}: "
            f"{len(answers)} chat answers, {len(bulk)} bulk generations and {len(embeddings)} "
            f"embedding requests came back; "
            + (f"last failure: {self.failures[-1]}" if self.failures else "nothing failed")
        )
