"""Ctrl-C ends a command with status 130 and without a traceback, whatever it is about to load."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

HANGS = "import time\nprint('loading', flush=True)\ntime.sleep(60)\n"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which a module of the same name in `tmp_path` is found first."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"chat_models": [{"id": "chat", "base_url": "http://127.0.0.1:1"}]}))
    return {**os.environ, "PYTHONPATH": str(tmp_path), "FOREBAY_CONFIG": str(file)}


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("--help", "typer"),
        ("check", "pydantic"),
        ("serve", "lark"),
        ("serve", "uvloop"),
        ("emulate", "aiohttp"),
        ("demo", "aiohttp"),
    ],
)
def test_ctrl_c_while_a_command_loads_leaves_nothing_but_its_status(
    tmp_path: Path, environment: dict[str, str], command: str, module: str
) -> None:
    (tmp_path / f"{module}.py").write_text(HANGS)
    process = subprocess.Popen(
        [sys.executable, "-m", "forebay", command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout.readline() == "loading\n"
            process.send_signal(signal.SIGINT)
            told, errors = process.communicate(timeout=10)
        finally:
            process.kill()
    assert (process.returncode, told, errors) == (130, "", "")


def test_a_shell_that_ignores_ctrl_c_for_its_jobs_is_obeyed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "typer.py").write_text(
        "import os, signal, sys\nos.kill(os.getpid(), signal.SIGINT)\nsys.exit(7)\n"
    )
    command = f"trap '' INT; exec {sys.executable} -m forebay check"
    result = subprocess.run(["sh", "-c", command], env=environment, check=False)
    assert result.returncode == 7


@pytest.mark.parametrize("module", ["aiohttp", "lark", "pydantic", "starlette", "uvicorn"])
def test_the_command_line_itself_loads_nothing_heavy(module: str) -> None:
    script = f"import sys; import forebay.cli._app; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
