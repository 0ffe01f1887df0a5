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

_ON = "vLLM (tiny model) and Infinity (MiniLM) on one core; target 1.25"


def start(processes: Processes) -> tuple[Engine, Engine]:
    """Start both."""
    chat = Engine(start_vllm(processes, processes.folder), VLLM_MODEL)
    return chat, Engine(start_infinity(processes), INFINITY_MODEL)


if __name__ == "__main__":
    pair.main("protection_infinity", _ON, start, EndlessClient)
