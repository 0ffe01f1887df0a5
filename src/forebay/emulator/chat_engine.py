"""The chat engine: continuous batching with chunked prefill over a paged KV cache.

The scheduler follows vLLM's: first come, first served; running sequences are scheduled before
waiting ones, each with the tokens it still has to compute; when a running sequence needs a KV block
and none is free, the sequence that was started last is preempted (its cache is dropped, it goes to
the head of the queue, and it is recomputed later); nothing new starts in such a step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.emulator.histogram import Histogram

if TYPE_CHECKING:
    from forebay.emulator.spec import ChatSpec

# Bounds of vLLM's vllm:time_to_first_token_seconds and vllm:inter_token_latency_seconds.
FIRST_TOKEN_BOUNDS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0,
    2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
INTER_TOKEN_BOUNDS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0,
    2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip


@dataclass(eq=False, slots=True)
class ChatSequence:
    """One prompt and the tokens that are generated for it.

    Args:
        prompt_tokens: length of the prompt, ≥ 1.
        output_tokens: how many tokens to generate, ≥ 1.
    """

    prompt_tokens: int
    output_tokens: int
    arrived_at: float = 0.0
    generated: int = 0
    cached: int = 0  # tokens whose keys and values are in the KV cache
    blocks: int = 0  # KV blocks held
    first_token_at: float | None = None
    last_token_at: float | None = None
    aborted: bool = False

    @property
    def to_compute(self) -> int:
        """Tokens before the next one can be generated: 1 while decoding."""
        return self.prompt_tokens + self.generated - self.cached

    @property
    def prefills(self) -> bool:
        """Whether more than the latest token has to be computed."""
        return self.generated == 0 or self.to_compute > 1

    @property
    def finished(self) -> bool:
        """Whether all tokens were generated."""
        return self.generated == self.output_tokens


@dataclass(slots=True)
class ChatCounters:
    """What a chat engine did since it began."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    finished: int = 0
    aborted: int = 0
    preemptions: int = 0


@dataclass(slots=True)
class ChatEngine:
    """Sequences that wait and run.

    Args:
        spec: the engine's numbers.
    """

    spec: ChatSpec
    waiting: deque[ChatSequence] = field(default_factory=deque)
    running: list[ChatSequence] = field(default_factory=list)  # by when they were started
    used_blocks: int = 0
    counters: ChatCounters = field(default_factory=ChatCounters)
    first_token_s: Histogram = field(default_factory=lambda: Histogram(*FIRST_TOKEN_BOUNDS_S))
    inter_token_s: Histogram = field(default_factory=lambda: Histogram(*INTER_TOKEN_BOUNDS_S))
    _batch: dict[ChatSequence, int] = field(default_factory=dict)  # tokens of the running step

    def check(self, sequence: ChatSequence) -> None:
        """Check that a sequence can run at all.

        Raises:
            ValueError: it is longer than `max_model_tokens`.
        """
        length = sequence.prompt_tokens + sequence.output_tokens
        if length > self.spec.max_model_tokens:
            raise ValueError(f"{length} tokens, but max_model_tokens {self.spec.max_model_tokens}")

    def add(self, sequence: ChatSequence, now: float) -> None:
        """Queue a sequence that passed `check`."""
        sequence.arrived_at = now
        self.waiting.append(sequence)

    def abort(self, sequence: ChatSequence) -> None:
        """Drop a sequence; one that the running step computes keeps its blocks until its end."""
        if sequence.finished or sequence.aborted:
            return
        sequence.aborted = True
        self.counters.aborted += 1
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        elif sequence not in self._batch:
            self._leave(sequence)

    def start_step(self) -> float | None:
        """Start a step if there is work; return how long it takes with the GPU to itself."""
        self._batch = self._schedule()
        if not self._batch:
            return None
        spec = self.spec
        context = sum(sequence.cached + tokens for sequence, tokens in self._batch.items())
        memory_s = spec.weights_s + context * spec.context_token_s
        compute_s = sum(self._batch.values()) * spec.token_s
        prefills = any(sequence.prefills for sequence in self._batch)
        prefill_s = spec.prefill_overhead_s if prefills else 0.0
        return max(memory_s, compute_s) + spec.overhead_s + prefill_s

    def end_step(self, now: float) -> list[ChatSequence]:
        """End the running step; return the sequences that got a token."""
        batch, self._batch = self._batch, {}
        grown = []
        for sequence, tokens in batch.items():
            if sequence.aborted:
                self._leave(sequence)
                continue
            sequence.cached += tokens
            if sequence.to_compute == 0:
                self._generate(sequence, now)
                grown.append(sequence)
        return grown

    def _schedule(self) -> dict[ChatSequence, int]:
        batch: dict[ChatSequence, int] = {}
        left = self.spec.max_step_tokens
        preemptions = self.counters.preemptions
        for sequence in tuple(self.running):
            tokens = min(sequence.to_compute, left)
            # Preempted by an older one of this step, or just now for itself: no longer running.
            if tokens == 0 or sequence not in self.running or not self._grow(sequence, tokens):
                break
            batch[sequence] = tokens
            left -= tokens
        if preemptions != self.counters.preemptions:
            return batch
        while left and self.waiting and len(self.running) < self.spec.max_sequences:
            sequence = self.waiting[0]
            tokens = min(sequence.to_compute, left)
            if self._blocks_for(sequence, tokens) > self.spec.kv_blocks - self.used_blocks:
                break
            self.running.append(self.waiting.popleft())
            self._grow(sequence, tokens)
            batch[sequence] = tokens
            left -= tokens
        return batch

    def _grow(self, sequence: ChatSequence, tokens: int) -> bool:
        """Take the blocks for more tokens, preempting the youngest; False: it was the youngest."""
        needed = self._blocks_for(sequence, tokens)
        while needed > self.spec.kv_blocks - self.used_blocks:
            youngest = self.running[-1]
            self._leave(youngest)
            youngest.cached = 0
            self.waiting.appendleft(youngest)
            self.counters.preemptions += 1
            if youngest is sequence:
                return False
        sequence.blocks += needed
        self.used_blocks += needed
        return True

    def _blocks_for(self, sequence: ChatSequence, tokens: int) -> int:
        return -(-(sequence.cached + tokens) // self.spec.block_tokens) - sequence.blocks

    def _generate(self, sequence: ChatSequence, now: float) -> None:
        sequence.generated += 1
        self.counters.output_tokens += 1
        if sequence.last_token_at is None:
            sequence.first_token_at = now
            self.counters.prompt_tokens += sequence.prompt_tokens
            self.first_token_s.observe(now - sequence.arrived_at)
        else:
            self.inter_token_s.observe(now - sequence.last_token_at)
        sequence.last_token_at = now
        if sequence.finished:
            self.counters.finished += 1
            self._leave(sequence)

    def _leave(self, sequence: ChatSequence) -> None:
        """Stop running a sequence and free its blocks."""
        self.running.remove(sequence)
        self.used_blocks -= sequence.blocks
        sequence.blocks = 0
