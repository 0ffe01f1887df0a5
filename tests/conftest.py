"""What every test may use."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["plugins.engines", "plugins.servers"]

# How long examples take says what else the machine does, not what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_is_heard() -> None:
    """Undo what a shell does to its background jobs, so that children are started as usual."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
