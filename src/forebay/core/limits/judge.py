"""What the levels of a search say about each other, and how sure that is."""

from __future__ import annotations

from enum import Enum, auto
from math import exp, log
from typing import TYPE_CHECKING

from forebay.core.limits.pace import gain

if TYPE_CHECKING:
    from forebay.core.limits.pace import Gain, Level, Reading

_WORTH = 0.08  # of what one more in flight pays far below the knee
_WELL = 0.3  # the same, where nothing waits yet
_IN_FULL = 0.7  # the same: there is room for much more
_CERTAIN = 2.5  # standard errors
_HOPEFUL, _DOUBTFUL = 0.5, 1.5  # standard errors that do for going on with a ramp, and for not

# A change at the same limit. Going up for nothing is cheap, going down for nothing is not.
_SLOWER, _FASTER = log(1.15), log(1.1)
_SLOWER_CERTAIN, _FASTER_CERTAIN = 4.0, 2.0

_QUEUES = log(1.3)  # slowness beside few in flight
_GUESS = 0.5  # the part that is served, while nothing is known of few in flight

_USUAL_WORK, _USUAL_S = 500, 32  # requests in the running means


class Change(Enum):
    """What has become of an endpoint under the same limit."""

    SLOWER = auto()
    FASTER = auto()


class Judge:
    """Compares levels, by what a usual request takes there.

    Attributes:
        usual_s: mean time of the last requests; 0 while there are none.
    """

    def __init__(self) -> None:
        self.usual_s = 0.0
        self._usual_work = 0.0
        self._count = 0
        self._base: Level | None = None  # so few in flight that nothing waits

    def see(self, reading: Reading) -> None:
        """Learn what is usual."""
        self._count += 1
        self._usual_work += (reading.work - self._usual_work) / min(self._count, _USUAL_WORK)
        self.usual_s += (reading.seconds - self.usual_s) / min(self._count, _USUAL_S)

    def worth(self, lower: Level, upper: Level, *, decide: bool) -> bool | None:
        """Whether the upper level is worth what it has more in flight.

        Returns:
            None if that is not certain, unless it is to be decided all the same.
        """
        return self._is_worth(lower, upper, _WORTH, decide=decide)

    def worth_a_probe(self, lower: Level, upper: Level, *, decide: bool) -> bool | None:
        """The same after a step up.

        Where nothing waits at the lower level, more in flight must pay well: there, what pays a
        little only is beyond a sharp knee, or noise.
        """
        part = _WORTH if self.queues(lower) else _WELL
        return self._is_worth(lower, upper, part, decide=decide)

    def _is_worth(self, lower: Level, upper: Level, part: float, *, decide: bool) -> bool | None:
        found = self._compare(lower, upper)
        surplus = found.work - part * found.width
        return surplus > 0 if decide or abs(surplus) > _CERTAIN * found.error else None

    def worth_trying(self, lower: Level, upper: Level, *, decide: bool) -> bool | None:
        """The same in a ramp, where one would rather go on, and be told later."""
        found = self._compare(lower, upper)
        surplus = found.work - _WORTH * found.width
        if surplus > _HOPEFUL * found.error:
            return True
        return False if decide or surplus < -_DOUBTFUL * found.error else None

    def pays_in_full(self, lower: Level, upper: Level) -> bool:
        """Whether, by and large, all of what is more in flight pays."""
        found = self._compare(lower, upper)
        return found.work > _IN_FULL * found.width

    def change(self, level: Level, fresh: Level) -> Change | None:
        """How fresh readings differ from older ones of the same limit, if they do."""
        found = self._compare(level, fresh)
        if found.slowness > max(_SLOWER, _SLOWER_CERTAIN * found.error):
            return Change.SLOWER
        if -found.slowness > max(_FASTER, _FASTER_CERTAIN * found.error):
            return Change.FASTER
        return None

    # -- beside few in flight ----------------------------------------------------------------------

    @property
    def knows_base(self) -> bool:
        """Whether it is known what requests take with few in flight."""
        return self._base is not None

    def begin_base(self, lower: Level | None, level: Level) -> None:
        """Take a small level as base, unless requests wait there already.

        Args:
            lower: the level before it, if there was one.
            level: the level.
        """
        if lower is None or not lower.readings:
            self._base = level
        elif self._base is not None:
            waits = self._compare(self._base, level).slowness > _QUEUES
            self._base = None if waits else level

    def extend_base(self, level: Level) -> None:
        """Take in a further level, if requests wait as little there."""
        if self._base is not None and self._compare(self._base, level).slowness < _SLOWER:
            self._base.readings.extend(level.readings)

    def learn_base(self, lower: Level, upper: Level) -> None:
        """Take the lower level as base if it is lower than the base, or as good."""
        base = self._base
        if base is None or lower.limit <= base.limit or self.pays_in_full(lower, upper):
            self._base = lower

    def forget_base_if_faster(self, level: Level) -> None:
        """Forget the base if the endpoint is another one than when it was measured."""
        if self._base is not None:
            found = self._compare(self._base, level)
            if -found.slowness > max(_FASTER, _SLOWER_CERTAIN * found.error):
                self._base = None

    def queues(self, level: Level) -> bool:
        """Whether requests take much longer than with few in flight, or that is not known."""
        if self._base is None or self._base.limit >= level.limit:
            return True
        found = self._compare(self._base, level)
        return found.slowness - _CERTAIN * found.error > _QUEUES

    def served(self, level: Level) -> float:
        """How many are served of those in flight, if the others wait (Little's law)."""
        if self._base is None:
            return _GUESS * level.inflight
        return level.inflight / exp(max(0.0, self._compare(self._base, level).slowness))

    def _compare(self, before: Level, after: Level) -> Gain:
        return gain(before, after, self._usual_work)
