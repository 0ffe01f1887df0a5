"""The gateway as a process of its own, as users run it."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.demo.processes import ChildProcess

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running `forebay serve`.

    Args:
        url: where it listens, e.g. ``http://127.0.0.1:8080``.
        pid: its process id.
        log: the file that gets everything it prints.
    """

    url: str
    pid: int
    log: Path

    @property
    def base_url(self) -> str:
        """Where its OpenAI-compatible API lives."""
        return f"{self.url}/v1"


def start_gateway(stack: ExitStack, config: Path, log: Path) -> Gateway:
    """Start it on a free port of loopback and wait until it is ready; it ends with `stack`.

    Raises:
        ProcessFailed: it did not come up.
    """
    port = _free_port()
    command = [sys.executable, "-m", "forebay", "serve", "--config", str(config)]
    command += ["--host", _LOOPBACK, "--port", str(port)]
    process = stack.enter_context(ChildProcess("gateway", command, log))
    url = f"http://{_LOOPBACK}:{port}"
    process.await_ok(f"{url}/readyz")
    return Gateway(url, process.pid, log)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
