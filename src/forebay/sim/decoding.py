"""Sequences that all get one token with every step, accounted for together.

Theory of operation. While nothing else happens, k steps of n sequences need no loop: the cached
context grows by n a step, and the sequence that ends first is known. So what differs between
sequences is kept relative to the count of steps: a sequence that joins at step s with c cached
tokens has a `base` of s - c, which never changes while it decodes, and has `steps - base` cached
tokens at any time. It ends at a step that is known when it joins.

KV blocks likewise: a sequence takes a new block in each step at which its cached tokens are a
multiple of the block, that is, at every `block_tokens`-th step, beginning at one that its base
tells. It is enough to know how many sequences there are of each such phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.sim.server import Job


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt and the tokens that are generated for it.

    Args:
        job: whose it is.
        arrived_at: when it came, seconds.
        cached: tokens whose keys and values are in the cache; out of date while it decodes.
        generated: tokens generated; out of date while it decodes.
        aborted: nobody wants it any more.
        queued: it has not been started yet.
        decoding: it is accounted for by `Decoding`, and so are the fields that follow.
    """

    job: Job
    arrived_at: float
    cached: int = 0
    generated: int = 0
    aborted: bool = False
    queued: bool = True
    decoding: bool = False
    base: int = 0
    ends_at_step: int = 0
    entry: int = 0

    @property
    def to_compute(self) -> int:
        """Tokens to be computed before the next one can be generated."""
        return self.job.size.input_tokens + self.generated - self.cached


class Decoding:
    """The sequences that decode.

    Args:
        block_tokens: tokens in one KV block.

    Attributes:
        count: how many there are.
        context: cached tokens of all of them.
    """

    def __init__(self, block_tokens: int) -> None:
        self.count = 0
        self.context = 0
        self._steps = 0
        self._block = block_tokens
        self._phases = [0] * block_tokens
        self._ends: list[tuple[int, int, Sequence]] = []  # entries may be out of date
        self._entries = 0

    def join(self, sequence: Sequence) -> None:
        """Let a sequence decode from the next step on."""
        self._entries += 1
        sequence.decoding = True
        sequence.base = self._steps - sequence.cached
        left = sequence.job.size.output_tokens - sequence.generated
        sequence.ends_at_step = self._steps + left
        sequence.entry = self._entries
        heappush(self._ends, (sequence.ends_at_step, self._entries, sequence))
        self._phases[sequence.base % self._block] += 1
        self.count += 1
        self.context += sequence.cached

    def leave(self, sequence: Sequence) -> None:
        """Take a sequence out, and bring its counts up to date."""
        sequence.decoding = False
        sequence.cached = self._steps - sequence.base
        left = sequence.ends_at_step - self._steps
        sequence.generated = sequence.job.size.output_tokens - left
        self._phases[sequence.base % self._block] -= 1
        self.count -= 1
        self.context -= sequence.cached

    def advance(self, steps: int) -> list[Sequence]:
        """Compute some steps, none beyond the first end; take out those that have ended."""
        self._steps += steps
        self.context += steps * self.count
        ended = []
        while self._ends and self._ends[0][0] <= self._steps:
            _, entry, sequence = heappop(self._ends)
            if sequence.decoding and sequence.entry == entry:
                self.leave(sequence)
                ended.append(sequence)
        return ended

    def steps_to_end(self) -> int:
        """Steps until the first of them ends; there must be one."""
        while True:
            at, entry, sequence = self._ends[0]
            if sequence.decoding and sequence.entry == entry:
                return at - self._steps
            heappop(self._ends)

    def blocks_for(self, steps: int) -> int:
        """KV blocks that so many steps take."""
        if steps == 1:
            return self._in_step(0)
        rounds, rest = divmod(steps, self._block)
        return rounds * self.count + sum(map(self._in_step, range(rest)))

    def steps_within(self, blocks: int) -> int:
        """The most steps that so many free KV blocks allow; there must be a sequence."""
        rounds, left = divmod(blocks, self.count)
        steps = rounds * self._block
        while (left := left - self._in_step(steps)) >= 0:
            steps += 1
        return steps

    def _in_step(self, step: int) -> int:
        """KV blocks that the step after `step` others takes."""
        return self._phases[(self._steps + step) % self._block]
