"""The two engines of the demonstration, on loopback."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.demo.models import chat_model, embedding_model

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.demo.processes import Processes

_SLOTS = 8
_CPUS = 2  # the same two for both engines: less than their threads could use
# Threads that wait for each other sleep instead of spinning: the other engine needs the core.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}


@dataclass(frozen=True, slots=True)
class Engine:
    """A model that is being served.

    Args:
        root: the server, e.g. ``http://127.0.0.1:8080``.
        model: the served model's id.
    """

    root: str
    model: str

    @property
    def base_url(self) -> str:
        """Where its OpenAI-compatible API lives."""
        return f"{self.root}/v1"


def start_chat_engine(processes: Processes) -> Engine:
    """Serve the tiny chat model, with one thread.

    Raises:
        DemoNotInstalled: a package that it needs is missing.
        ProcessFailed: the server did not come up.
    """
    return _start(processes, "tiny", chat_model(), "--threads", "1")


def start_embedding_engine(processes: Processes) -> Engine:
    """Serve MiniLM, with two threads.

    Raises:
        DemoNotInstalled: a package that it needs is missing.
        ProcessFailed: the server did not come up.
    """
    options = ("--threads", "2", "--embeddings", "--slot-context", "512")
    return _start(processes, "minilm", embedding_model(), *options)


def _start(processes: Processes, model: str, file: Path, *options: str) -> Engine:
    command = [sys.executable, "-m", "forebay.demo.llama_server", "--alias", model]
    command += ["--model", str(file), "--slots", str(_SLOTS), "--cpus", str(_CPUS), *options]
    process = processes.start(model, command, _ENVIRONMENT)
    return Engine(process.await_line(r"listening on (\S+)"), model)
