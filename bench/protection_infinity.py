"""vLLM's chat beside Infinity's embeddings (MiniLM), on one core that is their GPU.

python -m bench.protection_infinity [--rounds 4] [--seconds 12]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from forebay.demo.engines import Engine
from forebay.demo.processes import Processes

from . import pair, report, results
from .beside import EndlessClient
from .heavy_engines import INFINITY_MODEL, VLLM_MODEL, start_infinity, start_vllm

_ON = "vLLM (tiny model) and Infinity (MiniLM) on one core; target 1.25"


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=12.0)
    options = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder, Processes(Path(folder)) as processes:
        chat = Engine(start_vllm(processes, Path(folder)), VLLM_MODEL)
        embedding = Engine(start_infinity(processes), INFINITY_MODEL)
        phases = pair.run(processes, chat, embedding, EndlessClient, **options)
    path = results.write(
        "protection_infinity",
        command="make bench-protection-infinity",
        results=pair.rows(phases, _ON),
        details={name: phase.as_dict() for name, phase in phases.items()},
    )
    report.update()
    print(path.read_text("utf-8"))


if __name__ == "__main__":
    main()
