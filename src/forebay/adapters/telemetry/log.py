"""Structured logs: one line a record, ``time level logger message``; no secrets are ever logged."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from forebay.core.admission import Observer

if TYPE_CHECKING:
    from forebay.core.breaker import Change
    from forebay.core.model import Decision, Endpoint
    from forebay.core.protection import Guard

_log = logging.getLogger("forebay")


def configure(level: str) -> None:
    """Log to standard error from `level` (debug, info, warning, error) on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_level(level)


def set_level(level: str) -> None:
    """Log from `level` on."""
    logging.getLogger().setLevel(level.upper())


class LogObserver(Observer):
    """Logs what changes, with its reason."""

    def limit_changed(self, endpoint: Endpoint, decision: Decision, now: float) -> None:
        """Limits move often; that is for debugging."""
        del now
        _log.debug("limit endpoint=%s limit=%d %s", endpoint.id, decision.limit, decision.reason)

    def breaker_changed(self, endpoint: Endpoint, change: Change, now: float) -> None:
        """A breaker's opening is a warning, its closing is news."""
        del now
        level = logging.INFO if change.after == "closed" else logging.WARNING
        _log.log(
            level,
            "breaker endpoint=%s %s->%s %s",
            endpoint.id,
            change.before,
            change.after,
            change.reason,
        )

    def share_changed(self, guard: Guard, now: float) -> None:
        """What chat bears moves seldom, and says something of the deployment."""
        del now
        _log.info("protection gpu_group=%s share=%.2f %s", guard.group, guard.share, guard.reason)

    def stand_in_changed(self, model: str, now: float, *, serves: bool) -> None:
        """A failover wants to be known: what is left has less room. A recovery is news."""
        del now
        if serves:
            _log.warning("failover model=%s primary unreachable, its fallback takes over", model)
        else:
            _log.info("recovery model=%s failed back to primary", model)
