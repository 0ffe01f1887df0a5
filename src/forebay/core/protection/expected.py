"""What chat's readings would be without best-effort work.

Readings that were taken alone are fitted, on logarithms, by a surface over their size and over how
often chat asks: its own company slows it, too. (How much of it is in flight would tell the same,
but that also grows when something else slows it down.) Readings come in blocks. A block that is
plainly faster or slower than the surface means that the machine has another speed now, and moves
all that is known.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import exp, inf, log, log2, sqrt
from typing import TYPE_CHECKING, NamedTuple

from forebay.core.protection.slow import error, news, quick, spread, upper
from forebay.core.protection.surface import FLAT, Surface, fit

if TYPE_CHECKING:
    from forebay.core.model import Timing

FIRST, BLOCK = 8, 16
_MEMORY = 128
# Another speed: so much of a difference, as a logarithm, and so many times its standard error.
_MOVED, _CERTAIN = 0.1, 3.0
# Of a few readings the error is a guess, and the surface has been fitted to them.
_FEW = 16
_MIN_S = 1e-6
_TAIL = 0.95
# Rates beyond those that were seen alone, in doublings, of which nothing is known; and the least
# that counts, per second.
_FAR = 1.5
_LEAST_RATE = 0.1


class _Reading(NamedTuple):
    """A reading that was taken alone; logarithms, to base 2 but for the time."""

    size: float
    rate: float
    time: float


@dataclass(slots=True)
class Expected:
    """What one endpoint's readings of one kind are without best-effort work.

    Args:
        slow: what the slow ones are over what is expected, a logarithm.
        tail: their 95th percentile, likewise.
        doubt: standard error of `slow`.
    """

    slow: float = 0.0
    tail: float = 0.0
    doubt: float = inf
    _readings: deque[_Reading] = field(default_factory=lambda: deque(maxlen=_MEMORY))
    _block: list[_Reading] = field(default_factory=list)
    _surface: Surface = FLAT

    @property
    def known(self) -> bool:
        """Whether there is enough to judge other readings by."""
        return bool(self._readings)

    def learn(self, timing: Timing, rate: float) -> float:
        """Fold in a reading that was taken without best-effort work.

        Returns:
            How many times as long as before chat turned out to take alone; 1 for no change.
        """
        self._block.append(_reading(timing, rate))
        return self._fold() if len(self._block) >= (BLOCK if self._readings else FIRST) else 1.0

    def ratio(self, timing: Timing, rate: float) -> float | None:
        """How many times its expectation a reading is, as a logarithm.

        None where that is not known: nothing has been measured at such a rate.
        """
        reading = _reading(timing, rate)
        if not self._readings or self._surface.beyond(reading.rate) > _FAR:
            return None
        return self._over(reading)

    def _over(self, reading: _Reading) -> float:
        return reading.time - self._surface.at(reading.size, reading.rate)

    def _fold(self) -> float:
        block, self._block = self._block, []
        moved = 0.0
        if self._readings:
            old = [self._over(reading) for reading in self._readings]
            off = quick(map(self._over, block)) - quick(old)
            number = news(old) / (1 / len(block) + 1 / len(old))
            if abs(off) > max(_MOVED, _CERTAIN * spread(old) / sqrt(number)):
                moved = off
                # The block before this one may have been of both speeds.
                kept = list(self._readings)[:-BLOCK]
                self._readings.clear()
                self._readings.extend(each._replace(time=each.time + moved) for each in kept)
        self._readings.extend(block)
        self._surface = fit(self._readings)
        over = [self._over(reading) for reading in self._readings]
        count = len(over)
        self.slow, self.doubt = upper(over), error(over) * (1 + _FEW / count)
        self.tail = sorted(over)[int(_TAIL * (len(over) - 1))]
        return exp(moved)


def _reading(timing: Timing, rate: float) -> _Reading:
    size = log2(max(1.0, timing.size))
    return _Reading(size, log2(max(rate, _LEAST_RATE)), log(max(timing.seconds, _MIN_S)))
