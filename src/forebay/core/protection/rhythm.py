"""When chat counts as active, from how it comes and goes."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log

_GAIN = 0.1
_SHORTEST_GAP_S = 1e-3
# After its last request chat counts as active for a moment. Where the next one usually comes within
# `_SHORT_GAP_S`, it is waited for that much longer.
_MOMENT_S, _SHORT_GAP_S, _PATIENCE = 0.05, 0.5, 2.0
# Chat that has been away for so long, and for so many usual gaps, is not coming back soon: what may
# run doubles this often.
_LONG_S, _LONG_GAPS = 30.0, 20.0
_DOUBLING_S = 5.0
_MOST_DOUBLINGS = 30.0
_RELOOK_S = 1.0
_LATELY_S = 10.0


@dataclass(slots=True)
class Rhythm:
    """How chat comes and goes.

    Args:
        left_at: when its last request ended, seconds; minus infinity before the first.
        idle_at: it is idle from then on, unless it comes back.
    """

    left_at: float = -inf
    idle_at: float = -inf
    _asked: float = 0.0  # requests, older ones for less
    _asked_at: float = 0.0
    _log_gap: float = log(_SHORT_GAP_S)  # of the usual gap: a few long ones hardly move it

    def asked(self, now: float) -> None:
        """A request of chat starts."""
        self._asked = self._faded(now) + 1
        self._asked_at = now

    def rate(self, now: float) -> float:
        """How many requests of chat start per second, lately."""
        return self._faded(now) / _LATELY_S

    def _faded(self, now: float) -> float:
        return self._asked * exp(-max(0.0, now - self._asked_at) / _LATELY_S)

    def came(self, now: float) -> None:
        """Chat's first request after a gap starts."""
        if self.left_at > -inf:
            gap_s = max(now - self.left_at, _SHORTEST_GAP_S)
            self._log_gap += _GAIN * (log(gap_s) - self._log_gap)

    def left(self, now: float) -> None:
        """Chat's last request has ended."""
        gap_s = exp(self._log_gap)
        self.left_at = now
        self.idle_at = now + max(_MOMENT_S, _PATIENCE * gap_s if gap_s <= _SHORT_GAP_S else 0.0)

    @property
    def gone_at(self) -> float:
        """When chat will have stayed away for longer than it usually does."""
        return self.idle_at + _PATIENCE * exp(self._log_gap)

    def growth(self, now: float, *, known: bool) -> float:
        """How many times as much may run because chat has been idle for long.

        Args:
            now: seconds, while chat is idle.
            known: what chat's return bears is known; else growth begins at once.
        """
        doublings = (now - self._grows_from(known=known)) / _DOUBLING_S
        return float(2 ** min(max(doublings, 0.0), _MOST_DOUBLINGS))

    def grows_at(self, now: float) -> float:
        """When to look again at `growth`."""
        return now + _RELOOK_S

    def _grows_from(self, *, known: bool) -> float:
        patience_s = max(_LONG_S, _LONG_GAPS * exp(self._log_gap)) if known else 0.0
        return self.idle_at + patience_s
