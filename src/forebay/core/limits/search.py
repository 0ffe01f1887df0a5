"""The search for the knee: the limit from which on work per second rises no more.

Theory of operation
-------------------
A limit is judged by comparing two levels, measured one soon after the other (`judge`, `pace`): is
the upper one worth what it has more in flight? Four phases:

* RAMP: the limit doubles, as long as that is worth it or may well be. Up to `_SMALL` nothing is
  judged: it costs little, and engines that work in batches gain nothing from the second request but
  much from the fourth. Up to `_FEW` it is enough that answers begin.
* DOWN: a lower level is tried. It is kept if it does as much, else the limit goes back. That is how
  a ramp ends, and how every suspicion is answered that the engine only queues: requests take longer
  than they did, or much longer than with few in flight.
* HOLD: the limit stays, and is watched. Did requests get slower, see DOWN; faster, see RAMP. Now
  and then, the more seldom the less it pays, see UP.
* UP: a higher level is tried and kept if it is worth it; if it pays in full, see RAMP.

Where the knee is sharp, the limit rests a fifth above it. What waits there in the engine shows at
once when that can do more, and never lets it run dry.
"""

from __future__ import annotations

from enum import Enum, auto
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

from forebay.core.limits.intake import Intake
from forebay.core.limits.judge import Change, Judge
from forebay.core.limits.pace import Level, line
from forebay.core.limits.recent import Recent
from forebay.core.limits.schedule import SHALLOW, Schedule

if TYPE_CHECKING:
    from forebay.core.limits.first import Begin
    from forebay.core.limits.pace import Reading

_FEW, _SMALL = 4, 8
_DOUBLE, _PROBE, _LEAST_STEP = 2.0, 1.2, 3  # how far up
_LEAST_DEPTH = 0.85  # how far down, at least
_SLACK = 1.3
_EASE = 0.95

# Readings that any judgement needs, besides half a pool.
_FEWEST = 8
# Pools that a level needs before less is tried; pools after which it is decided.
_TESTABLE_POOLS = 2.0
_RAMP_POOLS, _TEST_POOLS = 2.0, 4.0


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


class Search:
    """One search. It is told what is read and says where the limit should go.

    Args:
        limit: where it begins.
    """

    def __init__(self, limit: int) -> None:
        self._judge = Judge()
        self._phase = Phase.RAMP
        self._limit = limit
        self._room = Room(1, limit)
        self._now = -inf
        self._other: Level | None = None  # what it came from, and compares with
        self._held = Level(limit)  # what was read in HOLD until the last look
        self._intake = Intake(limit)
        self._schedule = Schedule()
        self._ramping = False  # a test that ends a ramp, or lets it go on
        self._slow = False
        self._full = 0
        self._line = None
        self._recent = Recent(limit)

    @property
    def usual_s(self) -> float:
        """Mean time of the last requests; 0 while there are none."""
        return self._judge.usual_s

    @property
    def grown_from(self) -> int:
        """The limit that it went up from to see whether that pays; 0 if that is decided."""
        return self._other.limit if self._other and self._phase in {Phase.UP, Phase.RAMP} else 0

    def begin(self, limit: int, now: float) -> None:
        """Ramp up from a limit: the endpoint was away."""
        self._now = now
        self._ramping = False
        self._schedule.begin()
        self._go(Phase.RAMP, limit)

    def hold(self, limit: int, now: float) -> None:
        """Stay at a limit that somebody else has chosen."""
        self._now = now
        self._ramping = False
        self._schedule.more_paid()
        self._go(Phase.HOLD, limit)

    def skip(self, now: float) -> None:
        """Leave out what is in flight now."""
        self._intake.skip(now)

    def suspect(self, now: float) -> None:
        """Somebody else says that the engine queues: test less as soon as possible."""
        self._schedule.suspect(now)

    def turn_back(self, now: float) -> None:
        """Follow a clock that has jumped back to `now`."""
        self._now = now
        self._intake.turn_back(now)
        self._schedule.turn_back(now)

    def begun(self, begin: Begin, room: Room, now: float) -> Step | None:
        """An answer has begun: as long as the limit is small, that is enough."""
        intake = self._intake
        if not intake.begun(begin):
            return None
        self._room, self._now = room, now
        if self._phase is Phase.RAMP and self._limit < _FEW:
            full = intake.begins.count >= self._limit and intake.in_use(begin.inflight)
            return self._ramp() if full else None
        return self._relieve() if intake.begins.wait else None

    def ended(self, reading: Reading, room: Room, now: float) -> Step | None:
        """A request was answered."""
        self._judge.see(reading)
        due = self._intake.ended(reading, now)
        if self._phase is Phase.HOLD and self._line is not None and self._intake.in_use(reading.inflight):
            recent = self._recent.add(reading, self._line, now)
            if recent is not None and self._judge.change(self._held, recent) is Change.FASTER:
                self._room, self._now = room, now
                return self._faster(recent)
        if not due:
            return None
        if not self._intake.in_use(reading.inflight):
            room = room._replace(most=self._limit, why_not="not in use")
        self._room, self._now = room, now
        return self._look()

    # -- phases ------------------------------------------------------------------------------------

    def _look(self) -> Step | None:
        match self._phase:
            case Phase.RAMP:
                return None if self._may_go_on_soon else self._look_at_ramp()
            case Phase.UP:
                return self._look_at_upper()
            case Phase.DOWN:
                return self._look_at_lower()
            case _:
                return self._look_at_hold()

    def _look_at_ramp(self) -> Step | None:
        lower, level = self._other, self._intake.lot
        if self._limit < _SMALL:
            self._judge.begin_base(lower, level)
            return self._ramp()
        if lower is None or (len(lower) < _FEWEST and self._limit <= _DOUBLE * _SMALL):
            return self._ramp()
        if not lower.readings:
            self._ramping, self._schedule.depth = True, SHALLOW
            return self._test("cut: does less do as much?")
        worth = self._judge.worth_trying(lower, level, decide=self._intake.pools >= _RAMP_POOLS)
        if worth is None:
            return None
        if worth:
            self._judge.extend_base(level)
            return self._ramp()
        self._ramping = True
        return self._test("cut: does less do as much?", least=lower.limit)

    def _look_at_upper(self) -> Step | None:
        lower, level = self._tested, self._intake.lot
        worth = self._judge.worth_a_probe(lower, level, decide=self._intake.pools >= _TEST_POOLS)
        if worth is None:
            return None
        if not worth:
            self._schedule.more_did_not_pay()
            served = self._judge.served(lower) if self._judge.knows_base else 0.0
            rest = min(self._limit, int(_SLACK * served))
            return self._back(lower, "cut: more in flight did not pay", rest=rest)
        self._schedule.more_paid()
        if self._judge.pays_in_full(lower, level):
            return self._ramp()
        step = self._stay(level, "grew: more in flight paid")
        if not self._queues(level):
            self._schedule.try_more_now(self._now)
        return step

    def _look_at_lower(self) -> Step | None:
        level, upper = self._intake.lot, self._tested
        worth = self._judge.worth(level, upper, decide=self._intake.pools >= _TEST_POOLS)
        if worth is None:
            return None
        ramping, self._ramping = self._ramping, False
        if not worth:
            self._schedule.less_did_as_much(self._now)
            return self._stay(level, "cut: less in flight did as much")
        self._judge.learn_base(level, upper)
        if ramping:
            # What is only likely is held, tested again, and known better then.
            likely = self._judge.worth_trying(level, upper, decide=True) is True
            return self._back(upper, "grew: less in flight did less", ramp=likely)
        self._schedule.less_did_less(self._now, self.usual_s)
        return self._back(upper, "grew: less in flight did less")

    def _look_at_hold(self) -> Step | None:
        level, fresh, slow = self._held, self._intake.lot, self._slow
        if self._intake.is_too_short(self._now):
            return None
        self._slow = False
        self._intake.watch(self._now)
        if level.pools >= fresh.pools:
            match self._judge.change(level, fresh):
                case Change.SLOWER if slow:
                    # Not by the readings that roused the suspicion: those were chosen for it.
                    self._held = fresh
                    return self._test("cut: slower; does less do as much?")
                case Change.SLOWER:
                    self._slow = True
                    return None
                case Change.FASTER:
                    return self._faster(fresh)
        level.readings.extend(fresh.readings)
        self._line = line(level) if level.pools >= 1 else None
        is_due = self._schedule.less_is_due(self._now) and level.pools >= _TESTABLE_POOLS
        if is_due and (self._schedule.suspected or self._queues(level)):
            self._schedule.try_less(self._now, self.usual_s)
            return self._test("cut: does less do as much?")
        return self._probe() if self._schedule.more_is_due(self._now) else None

    def _relieve(self) -> Step | None:
        """First tokens wait: the engine has no room for so many."""
        limit = self._limit
        self._full = limit
        self._schedule.more_did_not_pay()
        if self._phase is Phase.UP:
            return self._back(self._tested, "cut: first tokens wait")
        if self._phase is Phase.RAMP and self._other:
            to = (limit + self._other.limit) // 2
        else:
            wait_s = self._intake.begins.wait_s
            waiting = limit * wait_s / (self.usual_s + wait_s)
            to = int(limit - max(1, (1 - _EASE) * limit, waiting / 2))
        to = max(self._room.floor, to)
        if to >= limit:
            return None
        self._ramping = False
        self._go(Phase.HOLD, to)
        return Step(to, "cut: first tokens wait")

    def _queues(self, level: Level) -> bool:
        begins = self._intake.begins
        return begins.wait if begins.tell else self._judge.queues(level)

    def _faster(self, fresh: Level) -> Step:
        self._judge.forget_base_if_faster(fresh)
        self._held = Level(self._limit)  # what was read is partly of slower times
        return self._ramp()

    # -- steps -------------------------------------------------------------------------------------

    @property
    def _may_go_on_soon(self) -> bool:
        """Whether the engine holds growth, perhaps for the prompts of what was just let in."""
        room = self._room
        return room.may_pass and room.most <= self._limit and self._intake.pools < _RAMP_POOLS

    @property
    def _level(self) -> Level:
        return self._held if self._phase is Phase.HOLD else self._intake.lot

    def _ramp(self) -> Step:
        return self._grow(Phase.RAMP, _DOUBLE, "grew: more in flight pays")

    def _probe(self) -> Step:
        """Try more. Where nothing waits, little more shows whether there is room."""
        factor = _DOUBLE if self._queues(self._held) else _PROBE
        full, self._full = self._full, 0
        most = (full + self._limit) // 2 if full > self._limit + 1 else 1<<30
        return self._grow(Phase.UP, factor, "grew: does more pay?", most)

    def _grow(self, phase: Phase, factor: float, why: str, most: int=1<<30) -> Step:
        level, limit = self._level, self._limit
        step = 1 if phase is Phase.RAMP else _LEAST_STEP
        to = min(max(ceil(limit * factor), limit + step), self._room.most, most)
        if to <= limit:
            return self._stay(level, f"held: {self._room.why_not}")
        self._go(phase, to, other=level)
        return Step(to, why)

    def _test(self, why: str, least: int = 0) -> Step:
        """Try less: what is served at once and a little more, but not too little."""
        level, limit = self._level, self._limit
        to = max(_SLACK * self._judge.served(level), self._schedule.depth * limit, least)
        to = max(self._room.floor, int(min(to, _LEAST_DEPTH * limit)))
        if to >= limit:
            return self._stay(level, "held: at the floor")
        self._go(Phase.DOWN, to, other=level)
        return Step(to, why)

    def _stay(self, level: Level, why: str) -> Step:
        """Hold where it is, and go on from what has been read."""
        self._go(Phase.HOLD, self._limit)
        self._held = level
        self._intake.count_like(level)
        return Step(self._limit, why)

    def _back(self, level: Level, why: str, *, rest: int = 0, ramp: bool = False) -> Step:
        """Go back to a level, or rest a little above it, or go on with the ramp from it."""
        to = max(level.limit, min(rest, self._room.most))
        self._go(Phase.HOLD, to)
        if to == level.limit:
            self._held = level
        grown = self._ramp() if ramp else Step(to, why)
        return grown if grown.limit != to else Step(to, why)

    def _go(self, phase: Phase, limit: int, other: Level | None = None) -> None:
        self._phase, self._limit, self._other = phase, limit, other
        self._slow = False
        self._line = None
        self._recent = Recent(limit)
        self._held = Level(limit)
        self._schedule.moved(self._now, self.usual_s)
        settles_s = 0.0
        if limit > (_SMALL if phase is Phase.RAMP else _FEW):
            drains_s = other.seconds if phase is Phase.DOWN and other else 0.0
            settles_s = _SETTLE[phase] * max(self.usual_s, drains_s)
        self._intake = Intake(limit, self._now, settles_s)
        if other is not None and other.readings and limit > other.limit:
            self._intake.count_from_below(other.limit)
        if phase is Phase.HOLD:
            self._intake.watch(self._now)
        elif limit >= _SMALL:
            self._intake.look_after(max(_FEWEST, limit // 2))

    @property
    def _tested(self) -> Level:
        """The level that the one under way is compared with."""
        assert self._other is not None  # noqa: S101 - UP and DOWN have one
        return self._other
