"""The library's types are what its users' type checkers find."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests" / "typing").glob("*.py"))


def check(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_agrees() -> None:
    check(sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", *FILES)


def test_pyright_agrees() -> None:
    pyright = shutil.which("basedpyright", path=Path(sys.executable).parent)
    if pyright is None:
        pytest.fail("basedpyright is not installed, though it is in the group `dev`")
    check(pyright, "--level", "error", *FILES)
