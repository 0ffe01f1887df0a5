"""Who computes in an engine's next step: the scheduler and its KV cache.

It is vLLM's, as `forebay.emulator.chat_engine` has it. First come, first served; who runs goes
before who waits, each with the tokens that it still has to compute, up to a budget for each step
(chunked prefill). When a running sequence needs a KV block and none is free, the one that was
started last is preempted: it loses its blocks, goes to the head of the queue and is recomputed.
Nothing new starts in such a step.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from forebay.sim.decoding import Decoding, Sequence


class Chunk(NamedTuple):
    """A part of a prompt that is computed in one step."""

    sequence: Sequence
    tokens: int


class Scheduler:
    """Sequences that wait and run.

    Args:
        max_sequences: that run at once.
        max_step_tokens: computed in one step.
        kv_blocks: size of the KV cache.
        block_tokens: tokens in one KV block.

    Attributes:
        waiting: first come, first served.
        running: in the order in which they were started.
        decoding: those that run and whose prompt is through.
        free_blocks: of the KV cache, before what the step under way takes for decoding.
        preemptions: how many there have been.
        queued: sequences that have been started.
        queue_s: how long they had waited for that, all together.
    """

    def __init__(
        self, *, max_sequences: int, max_step_tokens: int, kv_blocks: int, block_tokens: int
    ) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: dict[Sequence, None] = {}
        self.decoding = Decoding(block_tokens)
        self.free_blocks = kv_blocks
        self.preemptions = 0
        self.queued = 0
        self.queue_s = 0.0
        self._max_sequences = max_sequences
        self._max_step_tokens = max_step_tokens
        self._block_tokens = block_tokens
        self._partial: Sequence | None = None  # runs, and its prompt is not through yet

    def schedule(self, now: float) -> list[Chunk]:
        """Decide on the next step: all that decode, and the chunks that are returned."""
        preempted = False
        while self.decoding.blocks_for(1) > self.free_blocks:
            self._preempt(next(reversed(self.running)))
            preempted = True
        left = self._max_step_tokens - self.decoding.count
        chunks: list[Chunk] = []
        partial = self._partial
        if partial is not None and left:  # it was started last: a whole budget went into it
            if self._fits(partial, left):
                left -= self._take(partial, left, chunks)
                self._partial = None
            else:
                self._preempt(partial)
                preempted = True
        while not preempted and self._starts(left):
            sequence = self.waiting.popleft()
            self.running[sequence] = None
            if sequence.queued:
                sequence.queued = False
                self.queued += 1
                self.queue_s += now - sequence.arrived_at
            left -= self._take(sequence, left, chunks)
        return chunks

    def would_start(self) -> bool:
        """Whether the head of the queue might start in the next step."""
        return self._starts(self._max_step_tokens - self.decoding.count)

    def settle(self, steps: int, chunks: list[Chunk]) -> tuple[list[Sequence], list[Sequence]]:
        """Note that some steps are over; return who got a first token, and who has ended."""
        self.free_blocks -= self.decoding.blocks_for(steps)
        ended = self.decoding.advance(steps)
        answered = []
        for sequence, tokens in chunks:
            sequence.cached += tokens
            if sequence.to_compute:
                self._partial = sequence
                continue
            sequence.generated += 1
            if sequence.generated == 1:
                answered.append(sequence)
            if sequence.generated == sequence.job.size.output_tokens:
                ended.append(sequence)
            else:
                self.decoding.join(sequence)
        for sequence in ended:
            self.stop(sequence)
        return answered, ended

    def stop(self, sequence: Sequence) -> None:
        """Stop running a sequence and free its blocks."""
        del self.running[sequence]
        if sequence.decoding:
            self.decoding.leave(sequence)
        if sequence is self._partial:
            self._partial = None
        self.free_blocks += self.blocks(sequence.cached)

    def blocks(self, tokens: int) -> int:
        """KV blocks that so many tokens take."""
        return -(-tokens // self._block_tokens)

    def _starts(self, left: int) -> bool:
        return (
            left > 0
            and bool(self.waiting)
            and len(self.running) < self._max_sequences
            and self._fits(self.waiting[0], left)
        )

    def _fits(self, sequence: Sequence, left: int) -> bool:
        """Whether there are blocks for its next chunk, beside what decoding takes."""
        tokens = min(sequence.to_compute, left)
        return self._more(sequence, tokens) + self.decoding.blocks_for(1) <= self.free_blocks

    def _take(self, sequence: Sequence, left: int, chunks: list[Chunk]) -> int:
        tokens = min(sequence.to_compute, left)
        self.free_blocks -= self._more(sequence, tokens)
        chunks.append(Chunk(sequence, tokens))
        return tokens

    def _more(self, sequence: Sequence, tokens: int) -> int:
        return self.blocks(sequence.cached + tokens) - self.blocks(sequence.cached)

    def _preempt(self, sequence: Sequence) -> None:
        self.stop(sequence)
        sequence.cached = 0
        self.waiting.appendleft(sequence)
        self.preemptions += 1
