"""How an endpoint's breaker behaves."""

from __future__ import annotations

from dataclasses import dataclass

from forebay.errors import ConfigError


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """How an endpoint's breaker behaves.

    Args:
        enabled: False keeps it closed whatever happens.
        fail_threshold: failures in a row that open it, ≥ 1.
        base_cooldown_s: the first cooldown, and the shortest.
        max_cooldown_s: the longest cooldown, jitter included.
        backoff_factor: how much longer each cooldown is than the one before, ≥ 1.
        jitter: the share by which a cooldown varies at random to either side.
        probe_timeout_s: how long a probe may go without an answer before it counts as failed; more
            where answers usually take long.
        reset_after_requests: answers that a closed period needs before escalation is forgotten.
        reset_after_s: how long that closed period must last.
        ramp_double_s: after a recovery, the time in which the allowed concurrency doubles.

    Raises:
        ConfigError: if a value makes no sense.
    """

    enabled: bool = True
    fail_threshold: int = 3
    base_cooldown_s: float = 5.0
    max_cooldown_s: float = 300.0
    backoff_factor: float = 2.0
    jitter: float = 0.1
    probe_timeout_s: float = 15.0
    reset_after_requests: int = 10
    reset_after_s: float = 60.0
    ramp_double_s: float = 30.0

    def __post_init__(self) -> None:
        if self.fail_threshold < 1:
            raise ConfigError(f"fail_threshold is {self.fail_threshold}; it must be at least 1")
        if not 0 < self.base_cooldown_s <= self.max_cooldown_s:
            raise ConfigError(
                f"base_cooldown_s is {self.base_cooldown_s} and max_cooldown_s is "
                f"{self.max_cooldown_s}; the first must be above 0 and not above the second"
            )
        if self.backoff_factor < 1:
            raise ConfigError(f"backoff_factor is {self.backoff_factor}; it must be at least 1")
        for name in ("probe_timeout_s", "ramp_double_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0")
