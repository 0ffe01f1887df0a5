"""The states of a breaker, what moves it from one to another, and what is seen of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BreakerState(StrEnum):
    """Whether requests may be tried. Values are metric labels."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Event(StrEnum):
    """What moves a breaker; the value is the reason that operators read."""

    TRIPPED = "failures in a row"
    COOLED_DOWN = "cooldown over"
    PROBE_ANSWERED = "probe answered"
    PROBE_FAILED = "probe failed"
    PROBE_EXPIRED = "probe got no answer in time"


TRANSITIONS: dict[BreakerState, dict[Event, BreakerState]] = {
    BreakerState.CLOSED: {Event.TRIPPED: BreakerState.OPEN},
    BreakerState.OPEN: {Event.COOLED_DOWN: BreakerState.HALF_OPEN},
    BreakerState.HALF_OPEN: {
        Event.PROBE_ANSWERED: BreakerState.CLOSED,
        Event.PROBE_FAILED: BreakerState.OPEN,
        Event.PROBE_EXPIRED: BreakerState.OPEN,
    },
}


@dataclass(frozen=True, slots=True)
class Change:
    """One transition, and why."""

    before: BreakerState
    after: BreakerState
    reason: str


@dataclass(frozen=True, slots=True)
class BreakerSnapshot:
    """What a breaker is like at one instant.

    Args:
        state: see `BreakerState`.
        failures: failures in a row so far; when not closed, those that opened it.
        cooldown_s: the last cooldown's length; 0 before the first and once it is forgotten.
        remaining_s: time until the next request may be tried, as far as that is known.
        trips: times it went from closed to open.
        recoveries: times it went back to closed.
        probe_in_flight: a request holds the probe's lease.
        ramping: closed again so lately that concurrency is still capped.
    """

    state: BreakerState
    failures: int
    cooldown_s: float
    remaining_s: float
    trips: int
    recoveries: int
    probe_in_flight: bool
    ramping: bool
