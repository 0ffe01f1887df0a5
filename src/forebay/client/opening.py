"""How a session begins and ends."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from forebay.adapters.telemetry.requests import RequestObserver
from forebay.client.claims import CLAIMS
from forebay.client.home import Home
from forebay.client.http.inside import Inside
from forebay.client.session import Session
from forebay.config import load
from forebay.proxy.deployment import Deployment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from forebay.config import Plan

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open(config: str | Path | None = None) -> AsyncIterator[Session]:  # noqa: A001 - `forebay.open`
    """Open a session: ``async with forebay.open("config.json") as fb``.

    While it is open it goes by the file as it is: endpoints come and go, budgets move.

    Args:
        config: the configuration file; None finds it as the command line does: ``FOREBAY_CONFIG``,
            else the user's own.

    Raises:
        ConfigError: there is no such file, or it must not start.
        UsageError: a session that is open in this process governs one of the endpoints.
    """
    plan = load(config)
    for warning in plan.warnings:
        _log.warning("%s", warning)
    home = Home()

    def claim(plan: Plan) -> None:
        CLAIMS.claim((planned.endpoint.base_url for planned in plan.endpoints), home)

    def let_go() -> None:
        """Some endpoint may be gone; those that drain are not."""
        planned, connected = deployment.plan.endpoints, deployment.targets.values()
        endpoints = (*(p.endpoint for p in planned), *(t.endpoint for t in connected))
        CLAIMS.keep((endpoint.base_url for endpoint in endpoints), home)

    deployment = Deployment(plan, RequestObserver(), clock=home.clock, permit=claim)
    try:
        async with deployment, deployment.reload.following():
            deployment.targets.on_change(let_go)
            inside = Inside(deployment, home)
            try:
                yield Session(deployment, inside, home)
            finally:
                home.closed = True  # before others may claim the endpoints
                deployment.limiter.close()
                await inside.aclose()
                await deployment.identity.aclose()
                if live := deployment.limiter.admission.live:
                    _log.warning("closed with %d requests still running", live)
    finally:
        CLAIMS.let_go_all(home)
