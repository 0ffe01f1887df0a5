"""What is checked when the gateway starts."""

from __future__ import annotations

import resource

import pytest

from support.configs import one_chat
from support.endpoint import Endpoint

pytestmark = pytest.mark.anyio


async def test_too_few_files_for_the_ceilings_are_told(serve, gateway, monkeypatch, caplog):
    """Each request takes one towards its client and one towards its endpoint."""
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (150, 150))
    await gateway(one_chat(Endpoint(serve).url, ceiling=400, MODEL_MAX_CONCURRENCY=512))
    (warning,) = [r.getMessage() for r in caplog.records if "open files" in r.getMessage()]
    assert "150" in warning
    assert "900" in warning


async def test_the_limit_of_files_is_raised_where_that_is_allowed(
    serve, gateway, monkeypatch, caplog
):
    raised = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (150, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: raised.append(limits))
    await gateway(one_chat(Endpoint(serve).url, ceiling=400, MODEL_MAX_CONCURRENCY=512))
    assert raised == [(900, 4096)]
    assert not [r for r in caplog.records if "open files" in r.getMessage()]
