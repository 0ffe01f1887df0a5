"""First tokens: do prompts wait inside the engine?

An engine that has room computes a prompt in its next steps. Where first tokens come much later, it
has none: all its sequences are taken, or its KV cache is full and it is about to preempt what runs.
First tokens show that at once, long before whole requests get slower, and need no metrics.

Times are counted in the engine's own steps, of which each gives every running request a token. A
machine that gets slower, steps that get longer as more is in flight, and prompts that are computed
in the same steps are therefore no wait.

Nor is every late first token one: a prompt that no prefix cache knows takes long as well, and would
at any limit. But engines let requests in by turns, so that whoever waits for room holds up who came
later. A first token that is overtaken did not wait. Nor did any where all of them are late, and as
late with half as many in flight (`late`): that is what such prompts take now.
"""

from __future__ import annotations

from math import inf, log2
from typing import TYPE_CHECKING, NamedTuple

from forebay.core.limits.late import Late

if TYPE_CHECKING:
    from forebay.core.model import Timing

# A first token waits if it takes so many steps more than so many times what such a prompt does.
_STEPS, _TIMES = 5.0, 3.0
# One that took more steps may have waited, if all that is known of its like began under congestion.
_SOON = 25.0

_MAX_SIZE = 2.0**24
_STEP_READINGS = 32  # in the running mean of a step
# Of each doubling of prompt sizes: readings that are taken as usual, and those in the running mean.
_LEARN, _READINGS = 4, 32
_MAX_RISE = 2.0  # above the best that was known: no incident becomes usual

# Answers that begin, in a lot that is judged; those that waited, in number and as a part of it.
_LOT, _LOT_POOLS = 64, 2
_WAITED, _WAITED_PART = 4, 0.05


class Begin(NamedTuple):
    """An answer that begins.

    Args:
        started_at: when its request was admitted, seconds.
        inflight: how many were in flight when its first token came.
        wait_s: how long it waited for room inside the engine; None if that can not be told.
    """

    started_at: float
    inflight: int
    wait_s: float | None


class FirstTokens:
    """What first tokens usually take, and whether one waited."""

    def __init__(self) -> None:
        self._step_s = 0.0
        self._step_readings = 0
        self._latest_start = -inf  # of the answers that have begun
        self._usual: dict[int, _Usual] = {}

    def see_step(self, seconds: float) -> None:
        """Learn what a step takes, from the time per output token of a request."""
        self._step_readings = min(self._step_readings + 1, _STEP_READINGS)
        self._step_s += (seconds - self._step_s) / self._step_readings

    def forget(self) -> None:
        """Learn anew what first tokens take: the endpoint was away, and is perhaps another now."""
        self._usual.clear()

    def wait(self, timing: Timing, started_at: float, inflight: int = 0) -> float | None:
        """Return how many seconds a first token waited for room; None if that can not be told.

        Args:
            timing: of the first token.
            started_at: when its request was admitted, seconds.
            inflight: how many were in flight since then, at most; 0 while not known.
        """
        # Requests that start within a step may change places on the way.
        overtaken = self._latest_start > started_at + self._step_s
        self._latest_start = max(self._latest_start, started_at)
        if self._step_s <= 0:
            return None
        steps = timing.seconds / self._step_s
        size = int(log2(min(max(1.0, timing.size), _MAX_SIZE)))
        usual = self._usual.setdefault(size, _Usual())
        if usual.readings >= _LEARN and steps > _TIMES * usual.steps + _STEPS:
            usual.was_late(steps, inflight)
            return 0.0 if overtaken else (steps - usual.steps) * self._step_s
        usual.learn(steps)
        return 0.0 if steps <= _SOON else None

    def turn_back(self, now: float) -> None:
        """Follow a clock that has jumped back to `now`."""
        self._latest_start = min(self._latest_start, now)


class _Usual:
    """The steps that first tokens take after prompts of about one size."""

    __slots__ = ("_late", "best", "readings", "steps")

    def __init__(self) -> None:
        self.readings = 0
        self._late = Late()
        self.steps = self.best = 0.0

    def was_late(self, steps: float, inflight: int) -> None:
        late = self._late
        if inflight and late.add(steps, inflight):
            self.steps = self.best = late.steps
            self._late = Late()

    def learn(self, steps: float) -> None:
        if self._late:
            self._late = Late()
        self.readings = min(self.readings + 1, _READINGS)
        self.steps += (steps - self.steps) / self.readings
        if self.readings == _LEARN:
            self.best = self.steps
        elif self.readings > _LEARN:
            self.best = min(self.best, self.steps)
            self.steps = min(self.steps, _MAX_RISE * self.best)


class Begins:
    """Answers that have begun at one limit.

    Args:
        limit: the limit.

    Attributes:
        count: how many.
    """

    def __init__(self, limit: int) -> None:
        self.count = 0
        self._told = 0
        self._most = max(_LOT, _LOT_POOLS * limit)
        self._lot = self._waited = 0
        self._waited_s = 0.0

    def add(self, wait_s: float | None) -> None:
        """Take in one; 0 if it did not wait, None if that can not be told."""
        self.count += 1
        if wait_s is None:
            return
        if self._lot == self._most:
            self._lot = self._waited = 0
            self._waited_s = 0.0
        self._told += 1
        self._lot += 1
        self._waited += wait_s > 0
        self._waited_s += wait_s

    @property
    def are_enough(self) -> bool:
        """Whether that they do not wait says something."""
        return self._told >= self._most // 2

    @property
    def wait(self) -> bool:
        """Whether they wait, and not just a few by chance."""
        return self._waited >= max(_WAITED, _WAITED_PART * self._lot)

    @property
    def wait_s(self) -> float:
        """How long one waited, on average."""
        return self._waited_s / max(1, self._lot)
