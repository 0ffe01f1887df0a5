"""The embedding engine: dynamic batching of texts, first come, first served.

As in TEI, the queue holds texts, not requests: a step takes texts from its head, of whichever
request, while their padded tokens fit the batch, and a request ends with its last text.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.emulator.histogram import Histogram

if TYPE_CHECKING:
    from forebay.emulator.spec import EmbeddingSpec

QUEUE_BOUNDS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
BATCH_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(eq=False, slots=True)
class EmbeddingJob:
    """One request's texts.

    Args:
        text_tokens: length of each text; at least one text.
    """

    text_tokens: tuple[int, ...]
    arrived_at: float = 0.0
    embedded: int = 0  # texts that are done
    aborted: bool = False

    @property
    def finished(self) -> bool:
        """Whether all texts are done."""
        return self.embedded == len(self.text_tokens)


@dataclass(slots=True)
class EmbeddingCounters:
    """What an embedding engine did since it began; `tokens` without padding."""

    finished: int = 0
    aborted: int = 0
    texts: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Text:
    job: EmbeddingJob
    tokens: int
    padded: int


@dataclass(slots=True)
class EmbeddingEngine:
    """Texts that wait and are computed.

    Args:
        spec: the engine's numbers.
    """

    spec: EmbeddingSpec
    waiting: deque[_Text] = field(default_factory=deque)
    counters: EmbeddingCounters = field(default_factory=EmbeddingCounters)
    queue_s: Histogram = field(default_factory=lambda: Histogram(*QUEUE_BOUNDS_S))
    batch_texts: Histogram = field(default_factory=lambda: Histogram(*BATCH_BOUNDS))
    _batch: list[_Text] = field(default_factory=list)  # of the running step

    @property
    def running_texts(self) -> int:
        """Texts in the running step."""
        return len(self._batch)

    @property
    def batch_fill(self) -> float:
        """Padded tokens of the running step's batch, as a share of the largest one."""
        return sum(text.padded for text in self._batch) / self.spec.max_batch_tokens

    def add(self, job: EmbeddingJob, now: float) -> None:
        """Queue a request's texts."""
        job.arrived_at = now
        self.waiting.extend(
            _Text(job, min(tokens, self.spec.max_input_tokens), self.spec.padded(tokens))
            for tokens in job.text_tokens
        )

    def abort(self, job: EmbeddingJob) -> None:
        """Drop a request's texts; those that the running step computes are computed in vain."""
        if job.finished or job.aborted:
            return
        job.aborted = True
        self.counters.aborted += 1
        self.waiting = deque(text for text in self.waiting if text.job is not job)

    def start_step(self, now: float) -> float | None:
        """Start a step if there is work; return how long it takes with the GPU to itself."""
        tokens = 0
        while self.waiting and tokens + self.waiting[0].padded <= self.spec.max_batch_tokens:
            text = self.waiting.popleft()
            tokens += text.padded
            self._batch.append(text)
            self.queue_s.observe(now - text.job.arrived_at)
        if not self._batch:
            return None
        self.batch_texts.observe(len(self._batch))
        return max(self.spec.weights_s, tokens * self.spec.token_s) + self.spec.overhead_s

    def end_step(self) -> list[EmbeddingJob]:
        """End the running step; return the requests whose last text is done."""
        batch, self._batch = self._batch, []
        self.counters.texts += len(batch)
        self.counters.tokens += sum(text.tokens for text in batch)
        served = Counter(text.job for text in batch if not text.job.aborted)
        for job, texts in served.items():
            job.embedded += texts
        done = [job for job in served if job.finished]
        self.counters.finished += len(done)
        return done
