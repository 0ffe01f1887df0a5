"""Virtual time: a heap of events, and randomness that depends on the seed alone.

Nothing sleeps. `World.run` takes the earliest event, moves the clock there and calls it; events of
one instant run in the order in which they were made. So a run is a function of its seed.

Whatever draws has a stream of its own, by name: with another limit law the same requests arrive at
the same times, which is what makes two laws comparable.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Event:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("action", "args", "at")

    def __init__(self, at: float, action: Callable[..., None], args: tuple[object, ...]) -> None:
        self.at = at
        self.action: Callable[..., None] | None = action
        self.args = args

    def cancel(self) -> None:
        """Let it not happen; too late or twice, this does nothing."""
        self.action = None
        self.args = ()


class World:
    """The clock and what is due.

    Args:
        seed: of every random stream.

    Attributes:
        now: the time, seconds since the beginning.
    """

    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        self._seed = seed
        self._due: list[tuple[float, int, Event]] = []
        self._order = count()

    def __repr__(self) -> str:
        return f"<World at {self.now:g} s, {len(self._due)} events>"

    def at(self, when: float, action: Callable[..., None], *args: object) -> Event:
        """Call `action` at `when`, or now if that has passed."""
        event = Event(max(when, self.now), action, args)
        heappush(self._due, (event.at, next(self._order), event))
        return event

    def after(self, seconds: float, action: Callable[..., None], *args: object) -> Event:
        """Call `action` after some seconds."""
        return self.at(self.now + seconds, action, *args)

    def rng(self, name: str) -> Random:
        """Make the random stream of that name."""
        return Random(f"{self._seed}/{name}")  # noqa: S311 - a simulation, no secrets

    def run(self, until: float) -> None:
        """Let everything happen that is due up to and including `until`."""
        due = self._due
        while due and due[0][0] <= until:
            at, _, event = heappop(due)
            action = event.action
            if action is not None:
                self.now = at
                event.action = None
                action(*event.args)
        self.now = max(self.now, until)
