"""The primary embedder goes away under load, and comes back: what callers and the shared GPU see.

Emulated hosts, each a process in a network namespace of its own: the primary embedder, an older
card, and the host that chat and the fallback embedder share. 32 callers embed and 4 chat, all in a
closed loop, through `forebay serve` or with the library, in a process of its own. The primary is
killed (its port then refuses connections), or cut off (its packets vanish).

What is in flight on the shared GPU is counted by the emulated host itself, at every change.

    sudo python -m bench.failover [--rounds 2]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import signal
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.demo.gateway import start_gateway
from forebay.demo.processes import Processes
from forebay.emulator import EmbeddingSpec, EmulatorSpec

from . import report, results
from .failover_callers import CONNECT_S, READ_S
from .load import quantile
from .network import Host, Network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.demo.processes import ChildProcess

_PORT = 8100
_SPECS = {
    "primary": EmulatorSpec(embedding=EmbeddingSpec(overhead_s=0.08)),
    "shared": EmulatorSpec(embedding=EmbeddingSpec(overhead_s=0.01, token_s=2e-6)),
}
_BUDGET, _CEILING, _FLOOR = 6, 16, 2
_COOLDOWN_S, _RAMP_DOUBLE_S = 2.0, 1.0
_RAMP_S = _RAMP_DOUBLE_S * math.log2(_CEILING / _FLOOR)
_WARM_UP_S, _AWAY_S = 3.0, 5.0
# No embedding has come to the shared host for so long: the primary has them all again.
_QUIET_S = 1.5
_MOST_S = 30.0
_WAYS = ("gateway", "library")
_LOSSES = ("killed", "cut off")


@dataclass
class Found:
    """What was seen of one way of calling and one kind of loss, over all rounds."""

    calls: int = 0
    errors: list[str] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)
    usual_s: list[float] = field(default_factory=list)
    joint: int = 0
    returned_s: list[float] = field(default_factory=list)
    fallback_requests: int = 0

    def note(self, calls: list[dict[str, Any]], lost_at: float, returned_at: float) -> None:
        """Count one round's calls; each caller's pause is its longest call of the outage."""
        self.calls += len(calls)
        self.errors += [call["error"] for call in calls if call["error"]]
        longest: dict[str, float] = {}
        for call in calls:
            seconds = call["ended"] - call["began"]
            if not call["caller"].startswith("embed"):
                continue
            if call["ended"] < lost_at:
                self.usual_s.append(seconds)
            elif call["began"] < returned_at:
                longest[call["caller"]] = max(seconds, longest.get(call["caller"], 0.0))
        self.pauses_s += longest.values()


class Site:
    """The hosts, and what calls them."""

    def __init__(self, network: Network, folder: Path) -> None:
        self._network = network
        self._folder = folder
        self._primary, self._shared = network.add("primary"), network.add("shared")

    def round(self, way: str, loss: str, found: Found) -> None:
        """Lose the primary once, and wait until it serves everything again."""
        with Processes(self._folder) as processes:
            primary = self._emulate(processes, self._primary)
            self._emulate(processes, self._shared)
            callers = self._callers(processes, way)
            time.sleep(_WARM_UP_S)
            lost_at = time.monotonic()
            if loss == "killed":
                os.kill(primary.pid, signal.SIGKILL)
            else:
                self._network.cut(self._primary)
            time.sleep(_AWAY_S)
            if loss == "killed":
                self._emulate(processes, self._primary)
            else:
                self._network.mend(self._primary)
            back_at = time.monotonic()
            returned_at = self._await_return(back_at)
            os.kill(callers.pid, signal.SIGTERM)
            found.note(json.loads(callers.await_line(r"(\[.*\])")), lost_at, returned_at)
            record = self._record()
        found.joint = max(found.joint, record["gpu"]["max_inflight"])
        found.fallback_requests += record["embedding"]["requests"]
        found.returned_s.append(returned_at - back_at)

    def _await_return(self, back_at: float) -> float:
        """Return when the last embedding came to the shared host."""
        requests, last_at = -1, back_at
        while (now := time.monotonic()) - back_at < _MOST_S:
            seen = self._record()["embedding"]["requests"]
            if seen != requests:
                requests, last_at = seen, now
            elif now - last_at > _QUIET_S:
                return last_at
            time.sleep(0.02)
        return math.inf

    def _record(self) -> dict[str, Any]:
        url = f"http://{self._shared.address}:{_PORT}/emulator/record"
        with urllib.request.urlopen(url, timeout=5) as answer:
            record: dict[str, Any] = json.load(answer)
            return record

    def _emulate(self, processes: Processes, host: Host) -> ChildProcess:
        file = self._folder / f"{host.name}.spec.json"
        file.write_text(_SPECS[host.name].model_dump_json())
        command = [sys.executable, "-m", "forebay", "emulate", "--json", "--spec", str(file)]
        command += ["--host", host.address, "--port", str(_PORT)]
        process = processes.start(host.name, self._network.command(host, command))
        process.await_line(r"(\{.*\})")
        return process

    def _callers(self, processes: Processes, way: str) -> ChildProcess:
        if way == "gateway":
            where = start_gateway(processes, self._config()).base_url
        else:
            file = self._folder / "library.json"
            file.write_text(json.dumps(self._config()))
            where = str(file)
        command = [sys.executable, "-m", "bench.failover_callers", way, where]
        process = processes.start("callers", command)
        process.await_line("(calling)")
        return process

    def _config(self) -> dict[str, Any]:
        primary, shared = (f"http://{h.address}" for h in (self._primary, self._shared))
        return {
            "embedding_models": [
                {
                    "id": "embedding",
                    "base_url": f"{primary}:{_PORT + 1}/v1",
                    "gpu_group": "own",
                    "max_parallel_calls": _FLOOR,
                    "max_concurrent_requests": _CEILING,
                    "fallback": {
                        "id": "embedding",
                        "base_url": f"{shared}:{_PORT + 1}/v1",
                        "gpu_group": "shared",
                        "max_concurrent_requests": 8,
                    },
                }
            ],
            "chat_models": [
                {
                    "id": "chat",
                    "base_url": f"{shared}:{_PORT}/v1",
                    "gpu_group": "shared",
                    "max_parallel_calls": 2,
                }
            ],
            "GPU_CONCURRENCY_BUDGETS": {"own": _CEILING, "shared": _BUDGET},
            "MODEL_BREAKER_BASE_COOLDOWN_S": _COOLDOWN_S,
            "MODEL_BREAKER_MAX_COOLDOWN_S": _COOLDOWN_S,
            "forebay": {
                "timeouts": {"connect_s": CONNECT_S, "first_byte_s": READ_S},
                "breaker": {"ramp_double_s": _RAMP_DOUBLE_S},
            },
        }


def rows(way: str, loss: str, found: Found) -> Iterator[results.Result]:
    """The results of one way of calling and one kind of loss."""
    name = f"{way}, primary {loss}"
    calls = f"{found.calls} calls of 36 callers, {len(found.returned_s)} rounds"
    usual = quantile(found.usual_s, 0.99)
    yield results.at_most(f"{name}: errors", len(found.errors), "", 0, against=calls)
    yield results.at_most(
        f"{name}: pause of a caller, p99",
        quantile(found.pauses_s, 0.99),
        "s",
        2,
        against=f"each caller's longest call; p99 of all calls before it: {usual:.2g} s",
    )
    yield results.at_most(
        f"{name}: most in flight on the shared GPU",
        found.joint,
        "",
        _BUDGET,
        against=f"its own count at every change; {found.fallback_requests} embeddings there",
    )
    yield results.at_most(
        f"{name}: back at the primary alone after",
        max(found.returned_s),
        "s",
        _COOLDOWN_S + _RAMP_S,
        against=f"one cooldown of {_COOLDOWN_S:g} s and a ramp of {_RAMP_S:g} s",
    )


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description="Failover of an embedder under load.")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    found = {case: Found() for case in itertools.product(_WAYS, _LOSSES)}
    with Network() as network, tempfile.TemporaryDirectory() as folder:
        site = Site(network, Path(folder))
        for n in range(arguments.rounds):
            for (way, loss), seen in found.items():
                site.round(way, loss, seen)
                print(f"round {n + 1}: {way}, {loss}: {_short(seen)}", file=sys.stderr)
    figures = [row for (way, loss), seen in found.items() for row in rows(way, loss, seen)]
    if not arguments.dry:
        path = results.write("failover", command="make bench-failover", results=figures)
        report.update()
        print(f"wrote {path}")


def _short(found: Found) -> str:
    return (
        f"{found.calls} calls, {len(found.errors)} errors {found.errors[:2]}, pause p50 "
        f"{quantile(found.pauses_s, 0.5):.2f} p99 {quantile(found.pauses_s, 0.99):.2f} s, joint "
        f"{found.joint}, returned after {found.returned_s}"
    )


if __name__ == "__main__":
    main()
