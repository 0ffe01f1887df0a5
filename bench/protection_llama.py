"""llama.cpp's chat (one thread) beside MiniLM's embeddings (two threads), on two cores.

python -m bench.protection_llama [--rounds 4] [--seconds 12]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from forebay.demo.asking import Client
from forebay.demo.engines import start_chat_engine, start_embedding_engine
from forebay.demo.processes import Processes

from . import pair, report, results

_ON = "llama.cpp chat (1 thread) and MiniLM (2 threads) on 2 cores; target 1.25"


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=12.0)
    options = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder, Processes(Path(folder)) as processes:
        chat, embedding = start_chat_engine(processes), start_embedding_engine(processes)
        phases = pair.run(processes, chat, embedding, Client, **options)
    path = results.write(
        "protection_llama",
        command="make bench-protection-llama",
        results=pair.rows(phases, _ON),
        details={name: phase.as_dict() for name, phase in phases.items()},
    )
    report.update()
    print(path.read_text("utf-8"))


if __name__ == "__main__":
    main()
