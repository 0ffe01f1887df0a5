"""When best-effort work pauses, so that chat can be measured alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

# Readings that a pause is for, and those of the first one.
_READINGS, _FIRST_READINGS = 16, 16
# It gives up after this. What it costs stays under these parts of the time: while chat alone is
# not known, and afterwards.
_LONGEST_S, _FIRST_LONGEST_S = 10.0, 30.0
_FIRST_PART, _PART = 0.5, 0.05
# Chat is measured again after this.
_STALE_S = 30.0


@dataclass(slots=True)
class Pauses:
    """The pauses on one GPU.

    Args:
        allowed: there may be any.
        known: chat has been measured alone.
        began_at: the present one, seconds; None if there is none.
    """

    allowed: bool
    known: bool = False
    began_at: float | None = None
    _readings: int = field(default=0, init=False)
    _measured_at: float = field(default=-inf, init=False)
    _next_at: float = field(default=-inf, init=False)

    @property
    def ends_at(self) -> float:
        """When the present one gives up."""
        longest_s = _LONGEST_S if self.known else _FIRST_LONGEST_S
        return inf if self.began_at is None else self.began_at + longest_s

    def consider(self, now: float, *, doubtful: bool) -> None:
        """Begin one if it is time for it.

        Args:
            now: seconds.
            doubtful: what is known of chat alone may be out of date.
        """
        due = doubtful or now - self._measured_at >= _STALE_S
        if self.allowed and due and self.began_at is None and now >= self._next_at:
            self.began_at = now
            if self.known:
                self._readings = 0

    def measured(self, now: float) -> None:
        """Note a reading of chat alone, whether or not in a pause."""
        self._readings += 1
        self._measured_at = now
        if self._readings >= (_READINGS if self.known else _FIRST_READINGS):
            self.known = True
            self.end(now)

    def end(self, now: float) -> None:
        """End the present one."""
        if self.began_at is not None:
            took_s = now - self.began_at
            part = _PART if self.known else _FIRST_PART
            self.began_at, self._next_at = None, now + took_s * (1 / part - 1)
