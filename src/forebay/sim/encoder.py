"""An embedding engine: batches of texts, each as large as a number of tokens allows.

First come, first served. As in TEI, what is queued are texts, not requests: a batch takes texts
from the head of the queue, of whichever request, and a request ends with its last text. With the
GPU to itself a batch takes

    max(weights_s, tokens · token_s) + overhead_s

of padded tokens. The part of the GPU that it keeps busy grows with the square of how full it is,
from `least_load` up: chat's kernels wait for it with a probability that grows with the batch, for a
time that grows with the batch. An engine that computes on processors of its own, or on one that has
no room beside it, has a `least_load` of 1.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.core.model import Signal

if TYPE_CHECKING:
    from forebay.sim.gpu import Gpu
    from forebay.sim.server import Job
    from forebay.sim.world import World

# More batches than this in the queue count as saturated, as for TEI's metrics.
_QUEUED_BATCHES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """The numbers of an engine. The defaults are the emulated embedding engine's.

    Args:
        weights_s: reading the weights once: what a batch takes at least.
        token_s: computing one token.
        overhead_s: what every batch costs on top, > 0.
        pad_tokens: each text is padded up to a multiple of this.
        max_batch_tokens: padded tokens of one batch; a text that is longer is a batch by itself.
        least_load: part of the GPU that the smallest batch keeps busy.
        share: its weight on a GPU that others use (see `forebay.sim.gpu`).
    """

    weights_s: float = 0.010
    token_s: float = 2e-5
    overhead_s: float = 0.030
    pad_tokens: int = 128
    max_batch_tokens: int = 16384
    least_load: float = 0.0
    share: float = 3.0

    def build(self, world: World, gpu: Gpu) -> Encoder:  # noqa: ARG002 - the protocol's signature
        """Make the engine."""
        return Encoder(self, gpu)


@dataclass(slots=True, eq=False)
class _Texts:
    """What is left of one request."""

    job: Job
    padded: int  # tokens of each text
    queued: int
    running: int = 0
    aborted: bool = False


class Encoder:
    """An engine (`server.Server`) on a GPU."""

    def __init__(self, spec: EncoderSpec, gpu: Gpu) -> None:
        self._spec = spec
        self._gpu = gpu
        self._waiting: deque[_Texts] = deque()
        self._jobs: dict[Job, _Texts] = {}
        self._batch: list[_Texts] = []

    def submit(self, job: Job) -> None:
        """Queue a request's texts."""
        tokens = -(-job.size.input_tokens // job.size.texts)
        pad = self._spec.pad_tokens
        padded = min(-(-tokens // pad) * pad, self._spec.max_batch_tokens)
        texts = self._jobs[job] = _Texts(job, padded, job.size.texts)
        self._waiting.append(texts)
        if not self._batch:
            self._begin()

    def abort(self, job: Job) -> None:
        """Drop a request's texts; those of the batch under way are computed in vain."""
        texts = self._jobs.pop(job, None)
        if texts is None:
            return
        texts.aborted = True
        if texts.queued:
            self._waiting.remove(texts)

    def signal(self, now: float) -> Signal:
        """Tell what TEI's metrics tell: the queue, in texts."""
        waiting = sum(texts.queued for texts in self._waiting)
        batch = sum(texts.running for texts in self._batch)
        return Signal(
            "sim-encoder",
            now,
            running=len(self._batch),
            waiting=waiting,
            waiting_unit="inputs",
            saturated=waiting > _QUEUED_BATCHES * batch,
        )

    def _begin(self) -> None:
        """Start a batch, if there are texts."""
        spec, room = self._spec, self._spec.max_batch_tokens
        while self._waiting:
            texts = self._waiting[0]
            texts.running = min(texts.queued, room // texts.padded)
            if not texts.running:
                break
            texts.queued -= texts.running
            room -= texts.running * texts.padded
            self._batch.append(texts)
            if texts.queued:
                break
            self._waiting.popleft()
        if self._batch:
            tokens = spec.max_batch_tokens - room
            fill = tokens / spec.max_batch_tokens
            load = spec.least_load + (1 - spec.least_load) * fill**2
            work_s = max(spec.weights_s, tokens * spec.token_s) + spec.overhead_s
            self._gpu.start(work_s, self._end, load=load, share=spec.share)

    def _end(self) -> None:
        batch, self._batch = self._batch, []
        done = []
        for texts in batch:
            texts.running = 0
            if not texts.queued and not texts.aborted:
                del self._jobs[texts.job]
                done.append(texts.job)
        self._begin()
        for job in done:
            job.finished()
