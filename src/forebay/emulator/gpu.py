"""The model of one GPU that a chat engine and an embedding engine share.

Pure: no IO and no clock; `now` (seconds, never falling) is an argument, and nothing happens between
two calls that the next one does not catch up with, at the exact instants.

**A step** is one forward pass over an engine's batch. With the GPU to itself it takes

    chat:       max(weights_s + context · context_token_s, tokens · token_s)
                + overhead_s (+ prefill_overhead_s if it prefills)
    embedding:  max(weights_s, tokens · token_s) + overhead_s

which is the roofline of a transformer's step: either memory is the limit (the weights, and the
cached keys and values of the context, are read once) or arithmetic is (2 · parameters operations a
token). Tokens per second therefore rise with the batch and bend softly: time per token grows with
the batch long before anything is overloaded, as real engines show (vllm#17598: 8.2 → 9.4 ms a
token from 16 to 32 sequences). What is in a batch: see `chat_engine` and `embedding_engine`.

**Sharing.** While both engines are inside a step, they share the GPU. Let `fill` be the embedding
batch's tokens over the largest batch's. The contention is fill²: chat's kernels have to wait with a
probability that grows with the batch, for a time that grows with the batch. Then the steps go at

    chat:       1 - contention · (1 - chat_share)
    embedding:  1 - contention · chat_share

of their full speed. A small embedding batch leaves the GPU's processors partly idle, chat's kernels
run beside it, and both go at nearly full speed; beside a full batch the two speeds add up to one.
So chat crawls (at `chat_share`) under a storm that keeps the batch full, and hardly notices a few
requests, while the embedding engine is already near its best: its throughput is proportional to
fill / step time, which saturates early. Nothing here is tuned to a particular GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.emulator.chat_engine import ChatEngine, ChatSequence
from forebay.emulator.embedding_engine import EmbeddingEngine, EmbeddingJob
from forebay.emulator.faults import EngineName

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.emulator.spec import GpuSpec

Work = ChatSequence | EmbeddingJob

# Rounding of sums and differences of times up to some weeks; a step that has less left is over.
_INSTANT_S = 1e-9


@dataclass(frozen=True, slots=True)
class Event:
    """Some work got on: a sequence has its next token, a request for embeddings all vectors."""

    work: Work
    at: float


def _full_speed(_engine: EngineName) -> float:
    return 1.0


class Gpu:
    """One GPU, its two engines and what they compute now.

    Every method first brings the model to `now`, and returns what happened on the way.

    Args:
        spec: the numbers.
        slowdown: asked at each step's start, for how many times as long it takes.
    """

    def __init__(
        self, spec: GpuSpec, slowdown: Callable[[EngineName], float] = _full_speed
    ) -> None:
        self.chat = ChatEngine(spec.chat)
        self.embedding = EmbeddingEngine(spec.embedding)
        self._chat_share = spec.chat_share
        self._slowdown = slowdown
        self._now = 0.0
        # What is left of the running steps, in seconds at full speed; None: the engine is idle.
        self._chat_left_s: float | None = None
        self._embedding_left_s: float | None = None

    def submit(self, work: Work, now: float) -> list[Event]:
        """Queue a sequence or a request for embeddings.

        Raises:
            ValueError: the sequence is longer than the engine's `max_model_tokens`.
        """
        if isinstance(work, ChatSequence):
            self.chat.check(work)
        events = self.advance(now)
        if isinstance(work, ChatSequence):
            self.chat.add(work, now)
        else:
            self.embedding.add(work, now)
        self._start_steps()
        return events

    def abort(self, work: Work, now: float) -> list[Event]:
        """Drop what is left of some work; what its engine computes for it ends with the step."""
        events = self.advance(now)
        if isinstance(work, ChatSequence):
            self.chat.abort(work)
        else:
            self.embedding.abort(work)
        return events

    def advance(self, now: float) -> list[Event]:
        """Let time pass."""
        events: list[Event] = []
        while (at := self.next_at()) is not None and at <= now:
            self._compute_until(at)
            events += self._end_steps()
            self._start_steps()
        self._compute_until(now)
        return events

    def next_at(self) -> float | None:
        """Return when the next step ends if nothing else comes, None when both engines idle."""
        chat_speed, embedding_speed = self._speeds()
        ends = [
            self._now + left_s / speed
            for left_s, speed in (
                (self._chat_left_s, chat_speed),
                (self._embedding_left_s, embedding_speed),
            )
            if left_s is not None
        ]
        return min(ends, default=None)

    def _speeds(self) -> tuple[float, float]:
        if self._chat_left_s is None or self._embedding_left_s is None:
            return 1.0, 1.0
        contention = self.embedding.batch_fill**2
        return 1 - contention * (1 - self._chat_share), 1 - contention * self._chat_share

    def _compute_until(self, now: float) -> None:
        chat_speed, embedding_speed = self._speeds()
        passed_s, self._now = now - self._now, now
        if self._chat_left_s is not None:
            self._chat_left_s -= passed_s * chat_speed
        if self._embedding_left_s is not None:
            self._embedding_left_s -= passed_s * embedding_speed

    def _end_steps(self) -> list[Event]:
        done: list[Work] = []
        if self._chat_left_s is not None and self._chat_left_s <= _INSTANT_S:
            self._chat_left_s = None
            done += self.chat.end_step(self._now)
        if self._embedding_left_s is not None and self._embedding_left_s <= _INSTANT_S:
            self._embedding_left_s = None
            done += self.embedding.end_step()
        return [Event(work, self._now) for work in done]

    def _start_steps(self) -> None:
        if self._chat_left_s is None:
            work_s = self.chat.start_step()
            if work_s is not None:
                self._chat_left_s = work_s * self._slowdown(EngineName.CHAT)
        if self._embedding_left_s is None:
            work_s = self.embedding.start_step(self._now)
            if work_s is not None:
                self._embedding_left_s = work_s * self._slowdown(EngineName.EMBEDDING)
