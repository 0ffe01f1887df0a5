"""llama.cpp's chat beside MiniLM's embeddings, on one core that is the GPU of both.

python -m bench.protection_llama [--rounds 3] [--seconds 15]
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from forebay.demo.asking import Client
from forebay.demo.engines import start_chat_engine, start_embedding_engine

from . import pair
from .cores import GPU, OTHERS, move
from .proc import tree

if TYPE_CHECKING:
    from forebay.demo.engines import Engine
    from forebay.demo.processes import Processes


def start(processes: Processes) -> tuple[Engine, Engine]:
    """Start both; this process, and what it starts from now on, goes to the other core."""
    engines = start_chat_engine(processes), start_embedding_engine(processes)
    this, *others = tree(os.getpid())
    move(this, OTHERS)
    for pid in others:
        move(pid, GPU)
    return engines


PAIR = pair.Pair(
    name="protection_llama",
    on="llama.cpp's chat and MiniLM on one core; target 1.25",
    engines=start,
    client=Client,
    answer_tokens=96,
    texts=10,
    words=40,
    piece_tokens=80,
    think_s={"asks after 0.3 to 0.9 s: ": (0.3, 0.9), "asks after 20 to 60 ms: ": (0.02, 0.06)},
    learn_s=120.0,
)

if __name__ == "__main__":
    pair.main(PAIR)
