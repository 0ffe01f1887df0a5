"""When best-effort work pauses, so that chat can be measured alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

# Readings that a pause is for; those from which chat is known, and known well.
_READINGS, _KNOWN, _KNOWN_WELL = 16, 16, 160
# A pause gives up after this; the first ones later. What they cost stays under these parts of the
# time: before chat is known, until it is known well, and afterwards.
_LONGEST_S, _FIRST_LONGEST_S = 10.0, 30.0
_FIRST_PART, _EARLY_PART, _PART = 0.5, 0.15, 0.05
# Chat that is known well is measured again after this.
_STALE_S = 30.0


@dataclass(slots=True)
class Pauses:
    """The pauses on one GPU.

    Args:
        allowed: there may be any.
        began_at: the present one, seconds; None if there is none.
    """

    allowed: bool
    began_at: float | None = None
    _total: int = field(default=0, init=False)
    _until: int = field(default=_KNOWN, init=False)  # the present one is for so many in total
    _measured_at: float = field(default=-inf, init=False)
    _next_at: float = field(default=-inf, init=False)

    @property
    def known(self) -> bool:
        """Whether chat has been measured alone."""
        return self._total >= _KNOWN

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
        early = self._total < _KNOWN_WELL
        due = doubtful or early or now - self._measured_at >= _STALE_S
        if self.allowed and due and self.began_at is None and now >= self._next_at:
            self.began_at = now
            self._until = self._total + _READINGS if self.known else _KNOWN

    def measured(self, now: float) -> None:
        """Note a reading of chat alone, whether or not in a pause."""
        self._total += 1
        self._measured_at = now
        if self._total >= self._until:
            self.end(now)

    def end(self, now: float) -> None:
        """End the present one."""
        if self.began_at is not None:
            part = _FIRST_PART
            if self.known:
                part = _EARLY_PART if self._total < _KNOWN_WELL else _PART
            took_s = now - self.began_at
            self.began_at, self._next_at = None, now + took_s * (1 / part - 1)
