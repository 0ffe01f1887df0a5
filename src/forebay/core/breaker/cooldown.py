"""The cooldowns of an open breaker: each takes longer than the one before, give or take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from forebay.core.breaker.settings import BreakerSettings


class Rng(Protocol):
    """The one method of `random.Random` that a breaker needs."""

    def random(self) -> float:
        """Return the next number in [0, 1)."""


class Cooldown:
    """How long an open breaker keeps requests away.

    Args:
        settings: the shortest, the longest, how they grow and vary.
        rng: where the jitter comes from.
    """

    def __init__(self, settings: BreakerSettings, rng: Rng) -> None:
        self._settings = settings
        self._rng = rng
        self._backoff_s = 0.0  # before jitter; 0: the next one is the first
        self.length_s = 0.0  # of the last one

    def escalate(self) -> None:
        """Begin another one, longer than the one before."""
        settings = self._settings
        if self._backoff_s:
            longer_s = self._backoff_s * settings.backoff_factor
            self._backoff_s = min(settings.max_cooldown_s, longer_s)
        else:
            self._backoff_s = settings.base_cooldown_s
        swing = 1.0 + settings.jitter * (2.0 * self._rng.random() - 1.0)
        jittered_s = self._backoff_s * swing
        self.length_s = min(settings.max_cooldown_s, max(settings.base_cooldown_s, jittered_s))

    def forget(self) -> None:
        """Let the next one be the first again."""
        self._backoff_s = 0.0
