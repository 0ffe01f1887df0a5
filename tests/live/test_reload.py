"""What becomes of an edit that even Forebay fails at."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from forebay.config import load
from forebay.live import Diff, Reload
from support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.config import Plan

pytestmark = pytest.mark.anyio


def write(file: Path, ceiling: int) -> None:
    model = {"id": "m", "base_url": "http://127.0.0.1:9", "max_concurrent_requests": ceiling}
    file.write_text(json.dumps({"chat_models": [model]}), "utf-8")


async def test_an_error_of_forebays_own_is_told_and_the_next_edit_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config.json"
    write(file, 4)
    applied: list[int] = []

    def apply(plan: Plan) -> Diff:
        (planned,) = plan.endpoints
        if planned.endpoint.ceiling == 5:
            raise ZeroDivisionError("five")
        applied.append(planned.endpoint.ceiling)
        return Diff((), (), ())

    reload = Reload(load(file), apply, lambda: ())
    async with reload.following():
        write(file, 5)
        await eventually(lambda: reload.error is not None, within_s=10)
        assert "ZeroDivisionError('five')" in reload.error
        assert reload.reloads == {"applied": 0, "rejected": 1, "needs_restart": 0}
        write(file, 6)
        await eventually(lambda: applied == [6], within_s=10)
        await eventually(lambda: reload.error is None)
    assert caplog.text.count("its next edit is tried again") == 1
