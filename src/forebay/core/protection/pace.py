"""Keep the mean number of best-effort requests in flight at a real number.

A share of 2.4 is two slots all the time, and a third one for 0.4 of the time: after the third has
run for a second, it pauses for 1.5 s. A share of 0.2 is one slot for a fifth of the time.

What comes and goes like that starts, if it can, when no request of chat waits for its first token:
a short piece then does not slow any. It is not put off for longer than `patience_s`, and what it
loses by that is kept as credit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

# Shares are products of steps, so that a whole number may be missed by a rounding error.
_ROUNDING = 1e-6
_NO_TIME_S = 1e-6


@dataclass(slots=True)
class Pace:
    """What has run beyond the share, to be made up for by a pause.

    Args:
        debt_s: slot-seconds beyond the share.
        at: until when it is counted, seconds.
        patience_s: how long a start is put off at most.
    """

    debt_s: float = 0.0
    at: float = -inf
    patience_s: float = 0.0

    def pass_time(self, inflight: int, share: float, now: float) -> None:
        """Count the time since the last call, in which `inflight` requests ran."""
        if now > self.at > -inf:
            debt_s = self.debt_s + (inflight - share) * (now - self.at)
            self.debt_s = max(debt_s, -self._credit_s(share))
        self.at = now

    def forgive(self, now: float) -> None:
        """Begin anew."""
        self.debt_s, self.at = 0.0, now

    def holds(self, inflight: int, share: float, *, put_off: bool) -> bool:
        """Whether one more is too many now.

        Args:
            inflight: requests that run.
            share: how many should, on average.
            put_off: it would better start a little later.
        """
        if inflight + 1 <= share + _ROUNDING:
            return False
        return self._full(inflight, share) or self._to_wait_s(share, put_off=put_off) > _NO_TIME_S

    def opens_at(self, inflight: int, share: float, now: float, *, put_off: bool) -> float:
        """When `holds` will change by time alone; infinity if never."""
        if self._full(inflight, share):
            return inf
        to_wait_s = self._to_wait_s(share, put_off=put_off)
        return now + max(to_wait_s, _NO_TIME_S) / (share - inflight)

    def _full(self, inflight: int, share: float) -> bool:
        return inflight >= ceil(share - _ROUNDING)

    def _to_wait_s(self, share: float, *, put_off: bool) -> float:
        """Slot-seconds until one more may start."""
        return self.debt_s + (self._credit_s(share) if put_off else 0.0)

    def _credit_s(self, share: float) -> float:
        return share % 1.0 * self.patience_s
