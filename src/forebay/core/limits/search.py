"""The search for the knee: the limit from which on work per second rises no more.

Theory of operation
-------------------
A limit is judged by comparing two levels, measured one soon after the other (`judge`, `pace`): is
the upper one worth what it has more in flight? Four phases:

* RAMP: the limit doubles, as long as that is worth it or may well be. Up to `SMALL` nothing is
  judged: it costs little, and engines that work in batches gain nothing from the second request but
  much from the fourth. Up to `FEW` it is enough that answers begin.
* DOWN: a lower level is tried. It is kept if it does as much, else the limit goes back. That is how
  a ramp ends, and how every suspicion is answered that the engine only queues: requests take longer
  than they did, or much longer than with few in flight.
* HOLD: the limit stays, and is watched. Did requests get slower, see DOWN; faster, see RAMP. Now
  and then, the more seldom the less it pays, see UP.
* UP: a higher level is tried and kept if it is worth it; if it pays in full, see RAMP.

In every phase first tokens have a say, where answers are streamed. An engine with room computes a
prompt in its next steps (`first`). Where some wait, it is full: its sequences are taken, or its KV
cache is, and then it preempts what runs, which costs little work, and so shows in no comparison of
levels. The limit goes down until hardly any waits, and what waited is not tried at once again.

Where nothing but whole requests tells of a queue, the limit rests a little above a sharp knee. What
waits there in the engine shows at once when that can do more, and never lets it run dry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.limits.course import DOUBLE, FEW, FEWEST, SMALL, Course, Phase
from forebay.core.limits.judge import Change
from forebay.core.limits.watch import Watch

if TYPE_CHECKING:
    from forebay.core.limits.course import Room, Step
    from forebay.core.limits.first import Begin
    from forebay.core.limits.pace import Level, Reading

# Pools that a level needs before less is tried; pools after which it is decided.
_TESTABLE_POOLS = 2.0
_RAMP_POOLS, _TEST_POOLS = 2.0, 4.0


class Search:
    """One search. It is told what is read and says where the limit should go.

    Args:
        limit: where it begins.
    """

    def __init__(self, limit: int) -> None:
        self._course = Course(limit)
        self._judge = self._course.judge
        self._schedule = self._course.schedule
        self._ramping = False  # a test that ends a ramp, or lets it go on

    @property
    def usual_s(self) -> float:
        """Mean time of the last requests; 0 while there are none."""
        return self._judge.usual_s

    @property
    def grown_from(self) -> int:
        """The limit that it went up from to see whether that pays; 0 if that is decided."""
        course = self._course
        grows = course.phase in {Phase.UP, Phase.RAMP}
        return course.came_from.limit if course.came_from and grows else 0

    def begin(self, limit: int, now: float) -> None:
        """Ramp up from a limit: the endpoint was away."""
        self._course.now = now
        self._ramping = False
        self._schedule.begin()
        self._course.go(Phase.RAMP, limit)

    def hold(self, limit: int, now: float) -> None:
        """Stay at a limit that somebody else has chosen."""
        self._course.now = now
        self._ramping = False
        self._schedule.more_paid()
        self._course.go(Phase.HOLD, limit)

    def skip(self, now: float) -> None:
        """Leave out what is in flight now."""
        self._course.intake.skip(now)

    def suspect(self, now: float) -> None:
        """Somebody else says that the engine queues: test less as soon as possible."""
        self._schedule.suspect(now)

    def turn_back(self, now: float) -> None:
        """Follow a clock that has jumped back to `now`."""
        self._course.now = now
        self._course.intake.turn_back(now)
        self._course.watch.turn_back()
        self._schedule.turn_back(now)

    def begun(self, begin: Begin, room: Room, now: float) -> Step | None:
        """An answer has begun: as long as the limit is small, that is enough to go on."""
        course, begins = self._course, self._course.intake.begins
        if not course.intake.begun(begin):
            return None
        course.room, course.now = room, now
        if course.phase is Phase.RAMP and course.limit < FEW:
            in_use = course.intake.in_use(begin.inflight)
            return course.ramp() if in_use and begins.count >= course.limit else None
        if not begins.wait:
            return None
        step = course.ease()
        self._ramping = self._ramping and step is None
        return step

    def ended(self, reading: Reading, room: Room, now: float) -> Step | None:
        """A request was answered."""
        course = self._course
        self._judge.see(reading)
        if not course.intake.ended(reading, now):
            return None
        if not course.intake.in_use(reading.inflight):
            room = room._replace(most=course.limit, why_not="not in use")
        course.room, course.now = room, now
        if course.phase is Phase.HOLD:
            recent = course.watch.seem_faster(reading, now)
            if recent and self._judge.change(course.watch.level, recent) is Change.FASTER:
                return self._go_on(recent)
        return self._look() if course.intake.is_time() else None

    # -- phases ------------------------------------------------------------------------------------

    def _look(self) -> Step | None:
        match self._course.phase:
            case Phase.RAMP:
                return self._look_at_ramp()
            case Phase.UP:
                return self._look_at_upper()
            case Phase.DOWN:
                return self._look_at_lower()
            case _:
                return self._look_at_hold()

    def _look_at_ramp(self) -> Step | None:
        course = self._course
        lower, level, decide = course.came_from, course.intake.lot, self._is_read(_RAMP_POOLS)
        if course.may_go_on_soon and not decide:
            return None
        if course.limit < SMALL:
            self._judge.begin_base(lower, level)
        if lower is None or not lower.readings:
            return course.ramp()
        if course.limit < (SMALL if len(lower) >= FEWEST else DOUBLE * SMALL + 1):
            return course.ramp()
        worth = self._judge.worth_trying(lower, level, decide=decide)
        if worth is None:
            return None
        if worth:
            self._judge.extend_base(level)
            return course.ramp()
        self._ramping = True
        return course.test("cut: does less do as much?", least=lower.limit)

    def _look_at_upper(self) -> Step | None:
        course = self._course
        lower, level = course.tested, course.intake.lot
        worth = self._judge.worth_a_probe(lower, level, decide=self._is_read(_TEST_POOLS))
        if worth is None:
            return None
        if not worth:
            self._schedule.more_did_not_pay()
            return course.rest(lower, "cut: more in flight did not pay")
        self._schedule.more_paid()
        if self._judge.pays_in_full(lower, level):
            return course.ramp()
        step = course.stay(level, "grew: more in flight paid")
        if not course.queues(level):
            self._schedule.try_more_now(course.now)
        return step

    def _look_at_lower(self) -> Step | None:
        course = self._course
        level, upper = course.intake.lot, course.tested
        worth = self._judge.worth(level, upper, decide=self._is_read(_TEST_POOLS))
        if worth is None:
            return None
        ramping, self._ramping = self._ramping, False
        if not worth:
            self._schedule.less_did_as_much(course.now)
            return course.stay(level, "cut: less in flight did as much")
        self._judge.learn_base(level, upper)
        if ramping:
            # What is only likely is held, tested again, and known better then.
            likely = self._judge.worth_trying(level, upper, decide=True) is True
            return course.back(upper, "grew: less in flight did less", ramp=likely)
        self._schedule.less_did_less(course.now, self.usual_s)
        return course.back(upper, "grew: less in flight did less")

    def _look_at_hold(self) -> Step | None:
        course, watch, lot = self._course, self._course.watch, self._course.intake.lot
        if course.intake.is_too_short(course.now):
            return None
        course.intake.watch(course.now)
        slow, watch.slow = watch.slow, False
        known = watch.level.pools >= lot.pools
        if known and self._judge.change(watch.level, lot) is Change.SLOWER:
            watch.slow = not slow
            return self._follow(lot) if slow else None
        watch.extend(lot)
        return self._try_another()

    def _follow(self, slower: Level) -> Step | None:
        """Requests got slower: is it for what is in flight?"""
        course = self._course
        # Not by the readings that roused the suspicion: those were chosen for it.
        course.watch = Watch(slower)
        if course.intake.begins.are_enough:  # and do not wait: the machine got slower
            return None
        return course.test("cut: slower; does less do as much?")

    def _try_another(self) -> Step | None:
        """Nothing changes: now and then see what another limit does."""
        course, level = self._course, self._course.watch.level
        is_due = self._schedule.less_is_due(course.now) and level.pools >= _TESTABLE_POOLS
        if is_due and (self._schedule.suspected or course.queues(level)):
            self._schedule.try_less(course.now, self.usual_s)
            return course.test("cut: does less do as much?")
        return course.probe() if self._schedule.more_is_due(course.now) else None

    def _go_on(self, faster: Level) -> Step:
        """Requests got faster: there may be room for twice as many."""
        course = self._course
        self._judge.forget_base_if_faster(faster)
        course.watch = Watch(faster)  # the older readings are of slower times
        return course.follow_up()

    def _is_read(self, pools: float) -> bool:
        return self._course.intake.pools >= pools
