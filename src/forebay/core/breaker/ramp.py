"""How much an endpoint that has just come back may take: its floor, and twice as much by and by."""

from __future__ import annotations

from math import log2
from typing import NamedTuple

# After ten doublings a ramp is at 1024 times the floor: beyond every limit there is.
MOST_DOUBLINGS = 10


class Ramp(NamedTuple):
    """Where a ramp is.

    Args:
        cap: requests at once that it allows now.
        left_s: until it allows all that the endpoint's limit may ever be.
    """

    cap: int
    left_s: float


def ramp(floor: int, ceiling: int, age_s: float, double_s: float) -> Ramp:
    """Work out where a ramp is, `age_s` after the endpoint came back.

    Args:
        floor: where it begins.
        ceiling: where it ends.
        age_s: since when it lasts; less than `MOST_DOUBLINGS` times `double_s`.
        double_s: in which it doubles.
    """
    doublings = min(log2(ceiling / floor), MOST_DOUBLINGS) if ceiling > floor else 0.0
    cap = min(ceiling, int(floor * 2.0 ** (age_s / double_s)))
    return Ramp(cap, max(0.0, doublings * double_s - age_s))
