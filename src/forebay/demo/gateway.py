"""The gateway as a process of its own, as users run it."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.demo.processes import Processes

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running `forebay serve`.

    Args:
        url: where it listens, e.g. ``http://127.0.0.1:8080``.
        pid: its process id.
        log: the file that gets everything it prints.
        config: the file that it runs on.
    """

    url: str
    pid: int
    log: Path
    config: Path

    @property
    def base_url(self) -> str:
        """Where its OpenAI-compatible API lives."""
        return f"{self.url}/v1"


def start_gateway(processes: Processes, config: dict[str, Any], name: str = "gateway") -> Gateway:
    """Start it on a free port of loopback and wait until it is ready.

    Args:
        processes: where it is started; its configuration file lies in their folder.
        config: its configuration.
        name: of the process and its files.

    Raises:
        ProcessFailed: it did not come up.
    """
    file = processes.folder / f"{name}.json"
    file.write_text(json.dumps(config, indent=2), "utf-8")
    port = _free_port()
    command = [sys.executable, "-m", "forebay", "serve", "--config", str(file)]
    command += ["--host", _LOOPBACK, "--port", str(port)]
    process = processes.start(name, command)
    url = f"http://{_LOOPBACK}:{port}"
    process.await_ok(f"{url}/readyz")
    return Gateway(url, process.pid, process.log, file)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
