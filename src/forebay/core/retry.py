"""How many requests may be tried a second time, so that an outage does not double the load."""

from __future__ import annotations

from dataclasses import dataclass, field

# One retry is earned by so many requests: over time at most a tenth of them is retried.
_REQUESTS_PER_RETRY = 10


@dataclass(slots=True, eq=False)
class RetryBudget:
    """What may be retried of one model's requests.

    It begins full, and never holds more than `burst`: so however long it was quiet, the requests
    that were lost with an endpoint are retried at once, and hardly any that fail after them.

    Args:
        burst: retries that it holds at most: as many requests as the loss of the model's endpoints
            can strand.
    """

    burst: int
    _earned: int = field(init=False)  # in requests: whole numbers, so that no rest is lost

    def __post_init__(self) -> None:
        self._earned = self.burst * _REQUESTS_PER_RETRY

    @property
    def left(self) -> int:
        """How many requests may be retried now."""
        return self._earned // _REQUESTS_PER_RETRY

    def note_request(self) -> None:
        """Count a request; not its retries."""
        self._earned = min(self._earned + 1, self.burst * _REQUESTS_PER_RETRY)

    def resize(self, burst: int) -> None:
        """Hold another number of retries at most. One more comes full, one less is gone."""
        more = (burst - self.burst) * _REQUESTS_PER_RETRY
        self._earned = max(0, self._earned + more)
        self.burst = burst

    def try_retry(self) -> bool:
        """Take a retry, and return whether there was one left."""
        if self._earned < _REQUESTS_PER_RETRY:
            return False
        self._earned -= _REQUESTS_PER_RETRY
        return True
