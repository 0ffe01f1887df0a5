"""How much of chat's speed may be given away."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from forebay.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ProtectionSettings:
    """How well chat is protected.

    Args:
        target: chat's times may be this many times what they are without best-effort work, > 1.
        first_token_s: absolute goal for the time to the first token, in place of `target`.
        output_token_s: absolute goal for the time per output token, in place of `target`.
        min_duty: the part of the best-effort floors that goes on however slow chat is, in (0, 1];
            1 never goes below the floors.

    Raises:
        ConfigError: a value that makes no sense.
    """

    target: float = 1.25
    first_token_s: float | None = None
    output_token_s: float | None = None
    min_duty: float = 0.2

    def __post_init__(self) -> None:
        if not 1 < self.target < inf:
            raise ConfigError(f"target is {self.target}; it must be above 1")
        if not 0 < self.min_duty <= 1:
            raise ConfigError(f"min_duty is {self.min_duty}; it must be above 0, and at most 1")
        for name in ("first_token_s", "output_token_s"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 < seconds < inf:
                raise ConfigError(f"{name} is {seconds}; give seconds above 0, or leave it out")
