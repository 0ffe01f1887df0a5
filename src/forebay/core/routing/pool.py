"""The regular endpoints of one model, kept by how much of their limits is taken.

A list of a thousand endpoints is not searched for every request. They stand in *levels*, by load:
a change moves an endpoint from one level to another, and the first level that is not empty has the
least loaded ones. Loads that differ by less than a level is high count as equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.core.routing.rendezvous import Rendezvous

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.core.breaker import Rng
    from forebay.core.endpoint import EndpointState

_LEVELS = 128
# Where an endpoint stands that takes nothing now, and one that waits to be tried after an outage:
# the next request is for that, or nobody would ever know that it is back.
_NOWHERE, _TO_BE_TRIED = -1, 0


@dataclass(slots=True, eq=False, repr=False)
class Pool:
    """The endpoints of one model that are not stand-ins.

    Args:
        rng: chooses between equals.
        rendezvous: the keys' orders of the endpoints.
    """

    rng: Rng
    rendezvous: Rendezvous = field(default_factory=Rendezvous, init=False)
    _levels: list[list[EndpointState]] = field(init=False)
    _occupied: int = field(default=0, init=False)  # one bit for each level that is not empty
    # Endpoints whose engines told of others' requests, in the order in which that expires.
    _told: dict[EndpointState, None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._levels = [[] for _ in range(_LEVELS + 1)]

    def add(self, state: EndpointState) -> None:
        """Let requests go to an endpoint."""
        state.pool = self
        state.keys.clear()
        state.others, state.peak = 0.0, state.inflight
        self.rendezvous.add(state)
        self.moved(state)

    def remove(self, state: EndpointState) -> None:
        """Let no more requests go to an endpoint."""
        self.rendezvous.remove(state)
        self._told.pop(state, None)
        self._leave(state)
        state.pool = None

    @property
    def states(self) -> tuple[EndpointState, ...]:
        """The endpoints."""
        return self.rendezvous.states

    def started(self, state: EndpointState, key: str | None) -> None:
        """Note that a request started, with its affinity."""
        if key is not None:
            state.keys[key] = state.keys.get(key, 0) + 1
        state.peak = max(state.peak, state.inflight)
        self.moved(state)

    def ended(self, state: EndpointState, key: str | None) -> None:
        """Note that a request ended, with its affinity."""
        if key is not None and (held := state.keys.pop(key, 0)) > 1:
            state.keys[key] = held - 1
        self.moved(state)

    def moved(self, state: EndpointState) -> None:
        """Note that the load of an endpoint changed, or whether it takes anything."""
        if not state.usable or state.inflight >= state.limit:
            level = _NOWHERE
        elif state.to_be_tried:
            level = _TO_BE_TRIED
        else:
            level = 1 + min(int(state.load * _LEVELS), _LEVELS - 1)
        if level != state.level:
            self._leave(state)
            if level != _NOWHERE:
                equals = self._levels[level]
                state.level, state.place = level, len(equals)
                equals.append(state)
                self._occupied |= 1 << level

    def heard(self, state: EndpointState) -> None:
        """Note that an engine told of its load: it holds for a while."""
        self._told.pop(state, None)
        if state.others:
            self._told[state] = None
        self.moved(state)

    def forget(self, now: float) -> None:
        """Leave out of the loads what engines told too long ago."""
        told = self._told
        while told and (state := next(iter(told))).others_until <= now:
            del told[state]
            state.others = 0.0
            self.moved(state)

    def by_load(self) -> Iterator[EndpointState]:
        """The endpoints that take something, the least loaded first, equals from anywhere on."""
        occupied = self._occupied
        while occupied:
            lowest = occupied & -occupied
            occupied ^= lowest
            equals = self._levels[lowest.bit_length() - 1]
            count = len(equals)
            start = int(self.rng.random() * count) if count > 1 else 0
            for n in range(start, start + count):
                yield equals[n % count]

    def _leave(self, state: EndpointState) -> None:
        """Take an endpoint off its level; the last one there takes its place."""
        if state.level == _NOWHERE:
            return
        equals = self._levels[state.level]
        last = equals.pop()
        if last is not state:
            equals[state.place] = last
            last.place = state.place
        elif not equals:
            self._occupied ^= 1 << state.level
        state.level = _NOWHERE
