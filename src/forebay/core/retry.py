"""Stand-in until the budget is merged."""

from __future__ import annotations


class RetryBudget:
    def __init__(self, burst: int, share: float = 0.1) -> None:
        self._burst, self._share, self._left = burst, share, float(burst)

    def note_request(self) -> None:
        self._left = min(self._burst, self._left + self._share)

    def try_retry(self) -> bool:
        if self._left < 1:
            return False
        self._left -= 1
        return True
