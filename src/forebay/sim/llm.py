"""A language model engine with continuous batching, in closed form between events.

A step is one forward pass over the batch (see `forebay.sim.scheduler` for what is in it). It takes,
with the GPU to itself,

    max(weights_s + context · context_token_s, tokens · token_s)
    + overhead_s (+ prefill_overhead_s if it prefills)

where tokens of prompts take `prompt_token_s` instead of `token_s`, if that is given.

Theory of operation. Steps that only decode differ in nothing but the growing context, so a whole
*row* of them is one event: it lasts until a sequence ends, the cache fills up, or memory overtakes
arithmetic. An arrival that can start cuts the row short, at the end of the step that is under way.
Steps that prefill are rows of one. The outcome is the same, to rounding, as step by step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import TYPE_CHECKING

from forebay.core.model import Signal
from forebay.sim.decoding import Sequence
from forebay.sim.scheduler import Scheduler

if TYPE_CHECKING:
    from forebay.sim.gpu import Gpu, Task
    from forebay.sim.scheduler import Chunk
    from forebay.sim.server import Job
    from forebay.sim.world import World

# Part of a step that a rounding error may be.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmSpec:
    """The numbers of an engine. The defaults are the emulated chat engine's.

    Args:
        weights_s: reading the weights once: what a step takes at least.
        context_token_s: reading one cached token's keys and values.
        token_s: computing one token of a step's batch.
        prompt_token_s: computing one token of a prompt, where the engine has faster kernels for
            many tokens of one sequence, as CPUs have; None: like any other.
        overhead_s: what every step costs on top, > 0.
        prefill_overhead_s: what a step that prefills costs on top.
        max_sequences: sequences that run at once; the others wait in the engine's queue.
        max_step_tokens: tokens computed in one step, ≥ `max_sequences`.
        kv_blocks: size of the KV cache.
        block_tokens: tokens in one KV block.
        share: its weight on a GPU that others use (see `forebay.sim.gpu`).

    Raises:
        ValueError: not all sequences could get a token in one step.
    """

    weights_s: float = 0.010
    context_token_s: float = 1e-7
    token_s: float = 1e-4
    prompt_token_s: float | None = None
    overhead_s: float = 0.002
    prefill_overhead_s: float = 0.046
    max_sequences: int = 64
    max_step_tokens: int = 2048
    kv_blocks: int = 4096
    block_tokens: int = 16
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.max_step_tokens < self.max_sequences:
            raise ValueError(
                f"max_step_tokens is {self.max_step_tokens}, less than max_sequences "
                f"{self.max_sequences}: not all could get a token in one step"
            )

    def build(self, world: World, gpu: Gpu) -> Llm:
        """Make the engine."""
        return Llm(self, world, gpu)


@dataclass(slots=True)
class _Row:
    """Steps of one kind; the i-th, counted from 0, takes ``first_s + i · growth_s``."""

    steps: int
    first_s: float
    growth_s: float = 0.0
    chunks: list[Chunk] = field(default_factory=list)

    def total_s(self, steps: int) -> float:
        return steps * (self.first_s + self.growth_s * (steps - 1) / 2)

    def begun(self, work_s: float) -> int:
        """How many steps have begun when so much work is done."""
        if self.growth_s:
            b = self.first_s - self.growth_s / 2
            steps = (sqrt(b * b + 2 * self.growth_s * work_s) - b) / self.growth_s
        else:
            steps = work_s / self.first_s
        return min(self.steps, max(1, ceil(steps - _ROUNDING)))


class Llm:
    """An engine (`server.Server`) on a GPU."""

    def __init__(self, spec: LlmSpec, world: World, gpu: Gpu) -> None:
        self._spec = spec
        self._world = world
        self._gpu = gpu
        self._scheduler = Scheduler(
            max_sequences=spec.max_sequences,
            max_step_tokens=spec.max_step_tokens,
            kv_blocks=spec.kv_blocks,
            block_tokens=spec.block_tokens,
        )
        self._sequences: dict[Job, Sequence] = {}
        self._aborted: list[Sequence] = []
        self._under_way: tuple[_Row, Task] | None = None
        self._settling = False  # between two rows, while jobs are told

    def submit(self, job: Job) -> None:
        """Queue a sequence.

        Raises:
            ValueError: it could never run: nothing to generate, or longer than the KV cache.
        """
        size = job.size
        if size.output_tokens < 1 or size.input_tokens < 1:
            raise ValueError(f"{size} is no generation: it needs input and output tokens")
        if self._scheduler.blocks(size.input_tokens + size.output_tokens) > self._spec.kv_blocks:
            raise ValueError(f"{size} does not fit into {self._spec.kv_blocks} KV blocks")
        sequence = self._sequences[job] = Sequence(job, self._world.now)
        self._scheduler.waiting.append(sequence)
        self._wake()

    def abort(self, job: Job) -> None:
        """Drop a sequence; what the step under way computes for it is computed in vain."""
        sequence = self._sequences.pop(job, None)
        if sequence is None:
            return
        sequence.aborted = True
        if sequence in self._scheduler.running:
            self._aborted.append(sequence)
            self._cut()
        else:
            self._scheduler.waiting.remove(sequence)
            self._wake()

    def signal(self, now: float) -> Signal:
        """Tell what vLLM's metrics tell."""
        scheduler = self._scheduler
        waiting = len(scheduler.waiting)
        free_blocks = scheduler.free_blocks - scheduler.decoding.blocks_for(self._steps_over())
        return Signal(
            "sim-llm",
            now,
            running=len(scheduler.running),
            waiting=waiting,
            waiting_capacity=waiting,
            kv_usage=1 - free_blocks / self._spec.kv_blocks,
            preemptions=scheduler.preemptions,
            queue_seconds=scheduler.queue_s,
            queued=scheduler.queued,
            saturated=waiting > 0,
        )

    def _wake(self) -> None:
        """See whether the head of the queue changes what goes on."""
        if self._settling:
            return
        if self._under_way is None:
            self._begin()
        elif self._scheduler.would_start():
            self._cut()

    def _cut(self) -> None:
        """Let the row end with the step that is under way."""
        if self._under_way is None:
            return
        row, task = self._under_way
        steps = self._steps_over() + 1
        if steps < row.steps:
            cut_s = row.total_s(row.steps) - row.total_s(steps)
            row.steps = steps
            self._gpu.shorten(task, max(0.0, self._gpu.left_s(task) - cut_s))

    def _steps_over(self) -> int:
        """Steps of the row that have ended."""
        if self._under_way is None or self._under_way[0].steps == 1:
            return 0
        row, task = self._under_way
        return row.begun(row.total_s(row.steps) - self._gpu.left_s(task)) - 1

    def _begin(self) -> None:
        """Start the next row, if there is anything to compute."""
        scheduler = self._scheduler
        if self._aborted:
            for sequence in self._aborted:
                if sequence in scheduler.running:
                    scheduler.stop(sequence)
            self._aborted.clear()
        chunks = scheduler.schedule(self._world.now)
        if chunks or scheduler.decoding.count:
            row = self._prefill(chunks) if chunks else self._decode()
            task = self._gpu.start(row.total_s(row.steps), self._end, share=self._spec.share)
            self._under_way = row, task

    def _prefill(self, chunks: list[Chunk]) -> _Row:
        spec, decoding = self._spec, self._scheduler.decoding
        count, prompts = decoding.count, sum(chunk.tokens for chunk in chunks)
        cached = decoding.context + sum(chunk.sequence.cached for chunk in chunks)
        memory_s = spec.weights_s + (cached + count + prompts) * spec.context_token_s
        prompt_token_s = spec.token_s if spec.prompt_token_s is None else spec.prompt_token_s
        compute_s = count * spec.token_s + prompts * prompt_token_s
        # The last token of a prompt that is computed anew is a step of decoding like any other.
        prefills = any(s.generated == 0 or s.to_compute > 1 for s, _ in chunks)
        overhead_s = spec.overhead_s + (spec.prefill_overhead_s if prefills else 0.0)
        return _Row(1, max(memory_s, compute_s) + overhead_s, chunks=chunks)

    def _decode(self) -> _Row:
        spec, decoding = self._spec, self._scheduler.decoding
        count = decoding.count
        steps = min(decoding.steps_to_end(), decoding.steps_within(self._scheduler.free_blocks))
        if self._scheduler.would_start():  # nothing starts in a step that preempts, but in the next
            steps = 1
        memory_s = spec.weights_s + (decoding.context + count) * spec.context_token_s
        compute_s = count * spec.token_s
        growth_s = count * spec.context_token_s
        if memory_s >= compute_s:
            return _Row(steps, memory_s + spec.overhead_s, growth_s)
        if growth_s:  # until memory overtakes arithmetic
            steps = min(steps, ceil((compute_s - memory_s) / growth_s))
        return _Row(steps, compute_s + spec.overhead_s)

    def _end(self) -> None:
        """Give the row's tokens out, tell the jobs, and go on."""
        if self._under_way is None:
            return
        row, _ = self._under_way
        self._under_way = None
        self._settling = True
        answered, ended = self._scheduler.settle(row.steps, row.chunks)
        for sequence in answered:
            if not sequence.aborted:
                sequence.job.first_token()
        for sequence in ended:
            if not sequence.aborted:
                del self._sequences[sequence.job]
                sequence.job.finished()
        self._settling = False
        self._begin()
