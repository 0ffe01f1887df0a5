"""What `map_concurrent` does about errors of the caller's own function."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

# What kind of failure each may be.
Errors = type[Exception] | tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """Try an item again when its function raises; its slot is given back meanwhile.

    What an endpoint does wrong is tried at another one without it. The pause doubles each time.

    Args:
        attempts: how often the function is called for an item, at most.
        on: the errors that are worth another try.
        wait_s: the first pause, seconds.

    Raises:
        ValueError: a value that makes no sense.
    """

    attempts: int = 3
    on: Errors = Exception
    wait_s: float = 1.0

    def __post_init__(self) -> None:
        if not (isinstance(self.attempts, int) and self.attempts >= 1):
            raise ValueError(f"attempts is {self.attempts!r}; give a number of times from 1 on")
        kinds = self.on if isinstance(self.on, tuple) else (self.on,)
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise ValueError(f"on is {self.on!r}; give a class of exceptions, or a tuple of them")
        if not 0 <= self.wait_s < inf:
            raise ValueError(f"wait_s is {self.wait_s}; give seconds from 0 on")

    def tries(self, error: Exception, attempt: int) -> bool:
        """Whether the item is tried again after it failed for the `attempt`-th time."""
        return attempt < self.attempts and isinstance(error, self.on)

    def pause_s(self, attempt: int) -> float:
        """The pause after the `attempt`-th time, seconds."""
        return float(self.wait_s * 2 ** (attempt - 1))
