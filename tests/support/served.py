"""`forebay serve` as the process that people run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The command has no option for the time that is left to what runs.
SERVE = """
import sys
from pathlib import Path
from forebay.config import load
from forebay.gateway.serve import serve
serve(load(Path(sys.argv[1])), host="127.0.0.1", port=0, drain_s=float(sys.argv[2]))
"""


class Served:
    """A running one.

    Args:
        popen: the process.
        file: its configuration.
        log: what it prints.
    """

    def __init__(self, popen, file, log) -> None:
        self.popen = popen
        self.file = file
        self.log = log
        self.port = int(self.await_text(r"listening on http://\S+:(\d+)"))

    def await_text(self, pattern: str) -> str:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if found := re.search(pattern, self.text):
                return found[1]
            assert self.popen.poll() is None, self.text
            time.sleep(0.02)
        pytest.fail(f"{pattern} is not in: {self.text}")

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8")

    async def ended(self, within_s: float = 10) -> int:
        await eventually(lambda: self.popen.poll() is not None, within_s)
        return self.popen.returncode


@contextmanager
def served(
    folder: Path, config: dict[str, Any], *options: str, drain_s: float | None = None
) -> Iterator[Served]:
    """Run it on a configuration, until the block ends."""
    file, log = folder / "config.json", folder / "log"
    file.write_text(json.dumps(config), "utf-8")
    command = [sys.executable, "-m", "forebay", "serve", "--config", str(file), "--port", "0"]
    if drain_s is not None:
        command = [sys.executable, "-c", SERVE, str(file), str(drain_s)]
    with log.open("wb") as output:
        popen = subprocess.Popen([*command, *options], stdout=output, stderr=output)
    try:
        yield Served(popen, file, log)
    finally:
        popen.kill()
        popen.wait()
