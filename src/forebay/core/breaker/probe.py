"""The probe: the right of one request to try an endpoint that was broken.

It is a lease: held by one request until it is answered, for a limited time, and given back however
that request ends. That time is `probe_timeout_s`, or a few times what answers usually take if that
is more: who is slow is not broken. Before the first answer of all nobody knows what is usual; until
then a probe that runs out of time gives the next one twice as long, up to `max_cooldown_s`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.breaker.settings import BreakerSettings

# A probe that takes so many times what answers usually take is not merely slow.
_PATIENCE = 3.0


class Probe:
    """The lease, and how long the next one lasts.

    Args:
        settings: the shortest time, and the longest that is tried while the usual one is not known.
    """

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self.held = False
        self._timeout_s = 0.0  # of the last lease
        self._age_s = 0.0  # of the lease that is held
        self._patience_s = 0.0  # what the next one gets at least, until the first answer of all

    def take(self, usual_s: float) -> float:
        """Take the lease, and return how long it lasts, seconds.

        Args:
            usual_s: how long answers usually take; 0 while not known.
        """
        self.held = True
        self._age_s = 0.0
        self._timeout_s = self.patience_s(usual_s)
        return self._timeout_s

    def patience_s(self, usual_s: float) -> float:
        """How long an endpoint may go without an answer before it is not merely slow, seconds."""
        patience_s = _PATIENCE * usual_s if usual_s else self._patience_s
        return max(self._settings.probe_timeout_s, patience_s)

    def give_back(self) -> None:
        """End the lease, if one is held."""
        self.held = False

    def age(self, elapsed_s: float) -> None:
        """Let time pass for the lease that is held."""
        self._age_s += elapsed_s

    @property
    def overdue_s(self) -> float:
        """How long ago the time of the lease that is held was up; below 0 before that."""
        return self._age_s - self._timeout_s

    def ran_out(self) -> None:
        """Note that the last one got no answer in its time: the next one gets twice as long."""
        self._patience_s = min(self._settings.max_cooldown_s, 2.0 * self._timeout_s)

    def answered(self) -> None:
        """Note that the last one was answered: what is usual can be known from now on."""
        self._patience_s = 0.0
