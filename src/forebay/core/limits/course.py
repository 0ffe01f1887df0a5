"""Where a search for the knee is at, and the moves that it can make."""

from __future__ import annotations

from enum import Enum, auto
from math import ceil, inf
from typing import NamedTuple

from forebay.core.limits.intake import Intake
from forebay.core.limits.judge import Judge
from forebay.core.limits.pace import Level
from forebay.core.limits.schedule import Schedule
from forebay.core.limits.watch import Watch

FEW, SMALL = 4, 8
DOUBLE = 2.0
FEWEST = 8  # readings that any judgement needs, besides half a pool

_PROBE, _LEAST_STEP = 1.2, 3  # how far up
_LEAST_DEPTH = 0.85  # how far down, at least
_EASE = 0.05  # the same, where first tokens wait
# What waits inside an engine that shows by nothing else that it has room again.
_SLACK = 1.3


class Phase(Enum):
    """What the search is at."""

    RAMP = auto()
    HOLD = auto()
    UP = auto()
    DOWN = auto()


# Usual times after a move: what begins in them sees the move itself. More in flight begins with
# many prompts at once, less with a pool that short ones have left: both flatter the lower limit.
_SETTLE = {Phase.RAMP: 0.5, Phase.HOLD: 0.5, Phase.UP: 0.5, Phase.DOWN: 1.5}


class Step(NamedTuple):
    """Where the limit should be, and why."""

    limit: int
    why: str


class Room(NamedTuple):
    """Where the limit may go now.

    Args:
        floor: never below.
        most: not above.
        why_not: why not above.
        may_pass: what keeps it from going above may be over in a moment.
    """

    floor: int
    most: int
    why_not: str = ""
    may_pass: bool = False


class Course:
    """A limit, what is read at it, and where to go from there.

    Args:
        limit: where it begins.

    Attributes:
        room: where it may go.
        now: seconds.
        phase: what the limit is for.
        limit: the limit.
        came_from: the level before it, to compare with; None in HOLD.
        intake: what is read.
        watch: what is known of the limit, in HOLD.
    """

    def __init__(self, limit: int) -> None:
        self.judge = Judge()
        self.schedule = Schedule()
        self.room = Room(1, limit)
        self.now = -inf
        self.phase = Phase.RAMP
        self.limit = limit
        self.came_from: Level | None = None
        self.intake = Intake(limit)
        self.watch = Watch(Level(limit))
        self._crowded = 0  # where first tokens waited, unless it has been tried again since

    @property
    def tested(self) -> Level:
        """The level that the one under way is compared with."""
        assert self.came_from is not None  # noqa: S101 - UP and DOWN have one
        return self.came_from

    @property
    def may_go_on_soon(self) -> bool:
        """Whether the engine holds growth, perhaps for the prompts of what was just let in."""
        return self.room.may_pass and self.room.most <= self.limit

    def queues(self, level: Level) -> bool:
        """Whether the engine queues: first tokens tell, else how long requests take."""
        begins = self.intake.begins
        return begins.wait if begins.are_enough else self.judge.queues(level)

    def ramp(self) -> Step:
        """Double it."""
        return self._grow(Phase.RAMP, DOUBLE, "grew: more in flight pays")

    def follow_up(self) -> Step:
        """Try twice as many, where requests got faster."""
        return self._grow(Phase.UP, DOUBLE, "grew: faster; does more pay?")

    def probe(self) -> Step:
        """Try more. Where nothing waits, little more shows whether there is room.

        Where first tokens waited, half way there is tried first.
        """
        factor = DOUBLE if self.queues(self.watch.level) else _PROBE
        crowded, self._crowded = self._crowded, 0
        if crowded > self.limit + 1:
            half_way = (self.limit + crowded) // 2
            self.room = self.room._replace(most=min(half_way, self.room.most))
        return self._grow(Phase.UP, factor, "grew: does more pay?")

    def test(self, why: str, least: int = 0) -> Step:
        """Try less: what is served at once and a little more, but not too little."""
        level, limit = self._level, self.limit
        to = max(_SLACK * self.judge.served(level), self.schedule.depth * limit, least)
        to = max(self.room.floor, int(min(to, _LEAST_DEPTH * limit)))
        if to >= limit:
            return self.stay(level, "held: at the floor")
        self.go(Phase.DOWN, to, came_from=level)
        return Step(to, why)

    def ease(self) -> Step | None:
        """Go down because first tokens wait.

        In a ramp half of what it went up: so much and no more is known to be too much. Else by a
        little, or by half of what waits if that is more, since few tell badly how many that are.
        """
        limit, why = self.limit, "cut: first tokens wait"
        if limit <= self.room.floor:
            return None
        self._crowded = limit
        self.schedule.more_did_not_pay()
        if self.phase is Phase.UP:
            return self.back(self.tested, why)
        if self.phase is Phase.RAMP and self.came_from is not None:
            to = (limit + self.came_from.limit) // 2
        else:
            wait_s = self.intake.begins.wait_s
            waiting = limit * wait_s / (self.judge.usual_s + wait_s)
            to = int(limit - max(1, _EASE * limit, waiting / 2))
        to = max(self.room.floor, to)
        self.go(Phase.HOLD, to)
        return Step(to, why)

    def stay(self, level: Level, why: str) -> Step:
        """Hold where it is, and go on from what has been read."""
        self.go(Phase.HOLD, self.limit, known=level)
        self.intake.count_like(level)
        return Step(self.limit, why)

    def back(self, level: Level, why: str, *, ramp: bool = False) -> Step:
        """Go back to a level, or go on with the ramp from it."""
        self.go(Phase.HOLD, level.limit, known=level)
        grown = self.ramp() if ramp else None
        return grown if grown and grown.limit != level.limit else Step(level.limit, why)

    def rest(self, level: Level, why: str) -> Step:
        """Go back to a level, or a little above what is served at it, where that is known."""
        served = self.judge.served(level) if self.judge.knows_base else 0.0
        to = min(self.limit, int(_SLACK * served), self.room.most)
        if to <= level.limit or self.intake.begins.are_enough:
            return self.back(level, why)
        self.go(Phase.HOLD, to)
        return Step(to, why)

    def go(
        self,
        phase: Phase,
        limit: int,
        *,
        came_from: Level | None = None,
        known: Level | None = None,
    ) -> None:
        """Move, and begin to read."""
        usual_s = self.judge.usual_s
        self.phase, self.limit, self.came_from = phase, limit, came_from
        self.watch = Watch(known or Level(limit))
        self.schedule.moved(self.now, usual_s)
        settles_s = 0.0
        if limit > (SMALL if phase is Phase.RAMP else FEW):
            drains_s = came_from.seconds if phase is Phase.DOWN and came_from else 0.0
            settles_s = _SETTLE[phase] * max(usual_s, drains_s)
        self.intake = Intake(limit, self.now, settles_s)
        if came_from is not None and came_from.readings and limit > came_from.limit:
            self.intake.count_from_below(came_from.limit)
        if phase is Phase.HOLD:
            self.intake.watch(self.now)
        elif limit >= SMALL:
            self.intake.look_after(max(FEWEST, limit // 2))

    def _grow(self, phase: Phase, factor: float, why: str) -> Step:
        level, limit = self._level, self.limit
        step = 1 if phase is Phase.RAMP else _LEAST_STEP
        to = min(max(ceil(limit * factor), limit + step), self.room.most)
        if to <= limit:
            return self.stay(level, f"held: {self.room.why_not}")
        if phase is Phase.RAMP and SMALL < to < _PROBE * limit:
            # There is so little room that nothing could be told; what is left is tried next.
            self.go(Phase.HOLD, to)
            self.schedule.try_more_now(self.now)
            return Step(to, why)
        self.go(phase, to, came_from=level)
        return Step(to, why)

    @property
    def _level(self) -> Level:
        return self.watch.level if self.phase is Phase.HOLD else self.intake.lot
