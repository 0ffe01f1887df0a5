"""A GPU that several engines share: each piece of work goes the slower, the more runs beside it.

Theory of operation. A *task* is some work, in seconds that it takes with the GPU to itself. It has
a *load*, the part of the GPU that it keeps busy (0 to 1), and a *share*, its weight where there is
not enough for all. With tasks beside it a task goes at

    speed = 1 - contention · (1 - share / Σ shares)
    contention = min(1, load · Σ loads of the others)

Its *stretch* is 1 / speed. Full loads and equal shares are processor sharing: n tasks at 1/n each.
A small load beside a full one costs little, as a small batch leaves most processors to others. What
chat loses to a certain encoder can be measured; `sharing` finds load and share from that.

The machine itself may change: `capacity` is a factor on all speeds, `drift` makes everything slower
by some part each minute, `noise` is the sigma of a lognormal factor with mean 1 on each piece of
work.
"""

from __future__ import annotations

from math import exp, inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from forebay.sim.world import Event, World

# Two ends so near are one: what is left is a rounding error.
_INSTANT_S = 1e-9
_ROUNDING = 1e-9


class Task:
    """Work that is under way; `left_s` is what it takes yet, with the GPU to itself."""

    __slots__ = ("done", "left_s", "load", "pace", "share", "speed")

    def __init__(self, left_s: float, done: Callable[[], None], load: float, share: float) -> None:
        self.left_s = left_s
        self.done = done
        self.load = load
        self.share = share
        self.pace = 1.0
        self.speed = 0.0


class Gpu:
    """One GPU.

    Args:
        world: its clock.
        rng: for noise.

    Attributes:
        noise: sigma of the lognormal factor on each piece of work.
    """

    def __init__(self, world: World, rng: Random) -> None:
        self.noise = 0.0
        self._capacity = 1.0
        self._wear = 1.0  # how many times as long everything takes, at the instant `_wear_at`
        self._wear_at = 0.0
        self._drift_per_min = 0.0
        self._world = world
        self._rng = rng
        self._tasks: dict[Task, None] = {}
        self._since = 0.0
        self._next: Event | None = None

    @property
    def capacity(self) -> float:
        """A factor on the speed of everything."""
        return self._capacity

    @capacity.setter
    def capacity(self, factor: float) -> None:
        self._catch_up()
        self._capacity = factor
        self._plan()

    def drift(self, per_min: float) -> None:
        """Get slower by that part each minute from now on, e.g. 0.01; what was lost stays lost."""
        self._wear = self._worn()
        self._wear_at = self._world.now
        self._drift_per_min = per_min

    def start(
        self, work_s: float, done: Callable[[], None], *, load: float = 1.0, share: float = 1.0
    ) -> Task:
        """Begin some work; `done` is called when it is finished."""
        self._catch_up()
        task = Task(work_s, done, load, share)
        if self.noise:
            task.pace = 1 / self._factor()
        self._tasks[task] = None
        self._plan()
        return task

    def stop(self, task: Task) -> None:
        """Drop what is left of a task."""
        self._catch_up()
        if task in self._tasks:
            del self._tasks[task]
            self._plan()

    def left_s(self, task: Task) -> float:
        """What a task still takes, with the GPU to itself."""
        self._catch_up()
        return task.left_s

    def shorten(self, task: Task, left_s: float) -> None:
        """Let a task end earlier: after `left_s` more, with the GPU to itself."""
        self._catch_up()
        task.left_s = left_s
        self._plan()

    def occupy(self, load: float, share: float = 1.0) -> Task:
        """Begin work of somebody else, which nobody here knows of; it goes on until `stop`."""
        return self.start(inf, _never, load=load, share=share)

    def slowness(self) -> float:
        """Draw how many times as long as usual work takes that shares nothing and starts now."""
        return (self._factor() if self.noise else 1.0) / self._base()

    def _factor(self) -> float:
        return exp(self._rng.gauss(0.0, self.noise) - self.noise**2 / 2)

    def _base(self) -> float:
        return self._capacity / self._worn()

    def _worn(self) -> float:
        if not self._drift_per_min:
            return self._wear
        minutes = (self._world.now - self._wear_at) / 60
        return float(self._wear * (1 + self._drift_per_min) ** minutes)

    def _catch_up(self) -> None:
        passed_s = self._world.now - self._since
        self._since = self._world.now
        if passed_s:
            for task in self._tasks:
                task.left_s -= passed_s * task.speed

    def _plan(self) -> None:
        """Find every task's speed from now on, and who ends first."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if not self._tasks:
            return
        self._set_speeds()
        first = min(self._tasks, key=_seconds)
        left_s = _seconds(first)
        if left_s < inf:
            self._next = self._world.after(max(left_s, 0.0), self._end, first)

    def _set_speeds(self) -> None:
        base = self._base()
        loads = sum([task.load for task in self._tasks])
        shares = sum([task.share for task in self._tasks])
        for task in self._tasks:
            contention = min(1.0, task.load * (loads - task.load))
            task.speed = base * task.pace * (1 - contention * (1 - task.share / shares))

    def _end(self, first: Task) -> None:
        self._next = None
        self._catch_up()
        first.left_s = 0.0
        ended = [task for task in self._tasks if task.left_s <= _INSTANT_S]
        for task in ended:
            del self._tasks[task]
        self._plan()
        for task in ended:
            task.done()


def sharing(*, stretch: float, own_stretch: float) -> tuple[float, float]:
    """Calibrate how work shares a GPU with chat (load 1, share 1), from two measurements.

    Args:
        stretch: how many times as long chat takes beside it, both being busy all the time.
        own_stretch: how many times as long it takes itself beside chat.

    Returns:
        Its load and its share.

    Raises:
        ValueError: a stretch below 1, or together more than sharing explains (speeds that add up
            to less than 1).
    """
    lost, own_lost = 1 - 1 / stretch, 1 - 1 / own_stretch
    load = lost + own_lost
    if lost <= 0 or own_lost <= 0 or load > 1 + _ROUNDING:
        raise ValueError(
            f"stretch {stretch:g} beside own_stretch {own_stretch:g} is not sharing: each must be "
            f"above 1, and 1 / stretch + 1 / own_stretch at least 1"
        )
    return min(load, 1.0), lost / own_lost


def _seconds(task: Task) -> float:
    """How long a task takes yet, at its speed."""
    return task.left_s / task.speed


def _never() -> None:
    """Work without an end has none to be called at."""
