"""What every test may use."""

from __future__ import annotations

import pytest

pytest_plugins = ["plugins.engines"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
