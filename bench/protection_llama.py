"""llama.cpp's chat (one thread) beside MiniLM's embeddings (two threads), on two cores.

python -m bench.protection_llama [--rounds 4] [--seconds 12]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.demo.asking import Client
from forebay.demo.engines import start_chat_engine, start_embedding_engine

from . import pair

if TYPE_CHECKING:
    from forebay.demo.engines import Engine
    from forebay.demo.processes import Processes

_ON = "llama.cpp chat (1 thread) and MiniLM (2 threads) on 2 cores; target 1.25"


def start(processes: Processes) -> tuple[Engine, Engine]:
    """Start both."""
    return start_chat_engine(processes), start_embedding_engine(processes)


if __name__ == "__main__":
    pair.main("protection_llama", _ON, start, Client)
