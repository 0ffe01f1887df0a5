"""vLLM's chat beside Infinity's embeddings (MiniLM), on one core that is their GPU.

python -m bench.protection_infinity [--rounds 4] [--seconds 12]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.demo.engines import Engine

from . import pair
from .beside import EndlessClient
from .heavy_engines import INFINITY_MODEL, VLLM_MODEL, start_infinity, start_vllm

if TYPE_CHECKING:
    from forebay.demo.processes import Processes


def start(processes: Processes) -> tuple[Engine, Engine]:
    """Start both."""
    chat = Engine(start_vllm(processes, processes.folder), VLLM_MODEL)
    return chat, Engine(start_infinity(processes), INFINITY_MODEL)


PAIR = pair.Pair(
    name="protection_infinity",
    on="vLLM (tiny model) and Infinity (MiniLM) on one core; target 1.25",
    engines=start,
    client=EndlessClient,
    answer_tokens=32,
    texts=4,
    words=100,
    piece_tokens=160,
    think_s={"": (0.02, 0.06)},
    learn_s=90.0,
)

if __name__ == "__main__":
    pair.main(PAIR)
