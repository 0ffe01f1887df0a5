"""The two engines of the demonstration, started together on loopback."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.demo.models import chat_model, embedding_model
from forebay.demo.processes import ChildProcess

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

_SLOTS = 8
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


def start_chat_engine(stack: ExitStack, folder: Path) -> Engine:
    """Serve the tiny chat model with one thread until `stack` closes; its log goes to `folder`.

    Raises:
        DemoNotInstalled: a package that it needs is missing.
        ProcessFailed: the server did not come up.
    """
    options = ["--model", str(chat_model()), "--alias", "tiny", "--threads", "1"]
    return _start(stack, folder, "tiny", options)


def start_embedding_engine(stack: ExitStack, folder: Path) -> Engine:
    """Serve MiniLM with two threads until `stack` closes; its log goes to `folder`.

    Raises:
        DemoNotInstalled: a package that it needs is missing.
        ProcessFailed: the server did not come up.
    """
    options = ["--model", str(embedding_model()), "--alias", "minilm", "--threads", "2"]
    return _start(stack, folder, "minilm", [*options, "--embeddings", "--slot-context", "512"])


def _start(stack: ExitStack, folder: Path, model: str, options: list[str]) -> Engine:
    command = [sys.executable, "-m", "forebay.demo.llama_server", "--slots", str(_SLOTS), *options]
    log = folder / f"{model}.log"
    process = stack.enter_context(ChildProcess(model, command, log, _ENVIRONMENT))
    return Engine(process.await_line(r"listening on (\S+)"), model)
