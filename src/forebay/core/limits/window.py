"""What was measured under one limit, and what it says of that limit."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from math import inf, sqrt
from statistics import median

from forebay.core.model import TimingKind

# What is uncertain after so many readings stays so.
_MAX_READINGS = 256

# Windows of fast endpoints would otherwise follow each other within milliseconds.
_MIN_WINDOW_S = 0.25

# One reading counts as twice or half as long as expected at most, so that few cannot decide.
_CLIP = 1.0

# A busy endpoint is looked at thousands of times an hour: chance must be rarer than that.
_CERTAIN = 4.0  # standard errors; few readings tell their own scatter badly, hence more of them


class Latency(Enum):
    """What a window says of the limit it was measured under."""

    GOOD = auto()
    HIGH = auto()
    UNCERTAIN = auto()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement, and the reading behind it in words."""

    latency: Latency
    why: str = ""


class _Readings:
    """Excesses (see `baseline`) of one kind."""

    __slots__ = ("_excesses", "count", "next_look", "seen")

    def __init__(self, next_look: int) -> None:
        self._excesses: deque[float] = deque(maxlen=_MAX_READINGS)
        self.count = 0  # readings that were added
        self.seen = 0  # readings of this kind in all, older requests' included
        self.next_look = next_look

    def add(self, excess: float) -> None:
        self._excesses.append(excess)
        self.count += 1

    def weigh(self) -> tuple[float, float]:
        """Return the mean excess, and the part of it that chance does not explain.

        The mean, not the median: where a server works in batches, a quarter of the requests may
        take twice as long while half of them are as quick as ever.
        """
        clipped = [min(max(excess, -_CLIP), _CLIP) for excess in self._excesses]
        n = len(clipped)  # two at least
        mean = sum(clipped) / n
        variance = sum((excess - mean) ** 2 for excess in clipped) / (n - 1)
        return mean, mean - _CERTAIN * (1 + 4 / n) * sqrt(variance / n)

    def describe(self, kind: TimingKind) -> str:
        times = 2 ** median(self._excesses)
        return f"{kind.value.replace('_', ' ')} {times:.1f} × baseline"


class Window:
    """Readings of the requests that were admitted since the limit last moved.

    It is looked at for the first time after `least` readings of a kind, which may be enough to
    say that latency is high, and then after ever more. To call it good takes as many readings as
    the limit has slots, so that each has been used; and a good share of every kind that is seen.

    Args:
        least: readings that any judgement needs.
        limit: the limit in force.
        now: when it begins, seconds.
    """

    def __init__(self, least: int, limit: int, now: float) -> None:
        self._least = least
        self._few = max(2, least // 2)  # readings from which a kind has a say
        self._enough = min(max(least, limit), _MAX_READINGS)
        self._readings = {kind: _Readings(least) for kind in TimingKind}
        self.began_at = now
        self.peak = 0  # the most in flight

    def see(self, kind: TimingKind) -> None:
        """Note that there was a reading, whether or not it may be judged."""
        self._readings[kind].seen += 1

    def add(self, kind: TimingKind, excess: float, now: float) -> bool:
        """Add a reading; return whether it is time to look."""
        readings = self._readings[kind]
        readings.add(excess)
        return readings.count >= readings.next_look and now - self.began_at >= _MIN_WINDOW_S

    def judge(self, kind: TimingKind, tolerance: float) -> Verdict | None:
        """Look at all kinds, now that it is time to look at one; the worst decides.

        Returns:
            The verdict, after which the window is over; None if it has to go on.
        """
        worst, worst_kind, unheard = -inf, kind, False
        for each, readings in self._readings.items():
            if readings.count < self._few:
                unheard = unheard or readings.seen >= self._few
                continue
            mean, certain = readings.weigh()
            if certain > tolerance and readings.count >= self._least:
                return Verdict(Latency.HIGH, readings.describe(each))
            if mean > worst:
                worst, worst_kind = mean, each
        looked_at = self._readings[kind]
        if looked_at.count >= self._enough and worst <= tolerance and not unheard:
            return Verdict(Latency.GOOD)
        if looked_at.count >= _MAX_READINGS:
            why = self._readings[worst_kind].describe(worst_kind)
            return Verdict(Latency.UNCERTAIN, why if worst > tolerance else "readings are missing")
        most = self._enough if looked_at.count < self._enough else _MAX_READINGS
        looked_at.next_look = min(2 * looked_at.count, most)
        return None
