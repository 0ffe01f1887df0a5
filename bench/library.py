"""What the library costs: a slot beside a bare semaphore, a fan-out, and its import.

Nothing is sent anywhere: the requests are no-ops, so that all of it is the library's own. Times are
CPU time of this process; ratios are the median of rounds in which both sides take turns.

    python -m bench.library [--rounds 7]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forebay

from . import report, results
from .library_http import beside_straight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_UNCONTENDED, _HAND_OVERS, _ITEMS = 20_000, 10_000, 100_000
_TASKS = 100
_FIRST, _SLICE = 50_000, 300_000
_ENDLESS = 10_000_000
_PAGE_MB = 4096 / 1e6
_ON = "CPU time, asyncio's own loop"
# What only the gateway needs.
_GATEWAY = ("prometheus_client", "rich", "starlette", "typer", "uvloop")


def config(folder: Path, ceiling: int) -> Path:
    """Write a configuration of one model where nobody listens."""
    path = folder / f"config-{ceiling}.json"
    endpoint = {"base_url": "http://127.0.0.1:9/v1", "gpu_group": "gpu", "engine": "unknown"}
    model = {"id": "embed", "endpoints": [endpoint | {"max_concurrent_requests": ceiling}]}
    path.write_text(json.dumps({"embedding_models": [model], "forebay": {"limit": "fixed"}}))
    return path


async def uncontended(acquire: Callable[[], Any]) -> float:
    """CPU seconds of one acquire and release that nobody else wants."""
    began_at = time.process_time()
    for _ in range(_UNCONTENDED):
        async with acquire():
            pass
    return (time.process_time() - began_at) / _UNCONTENDED


async def handed_over(acquire: Callable[[], Any]) -> float:
    """CPU seconds of one of many tasks in turn, each of which waits for the one before."""

    async def work() -> None:
        for _ in range(_HAND_OVERS // _TASKS):
            async with acquire():
                await asyncio.sleep(0)

    began_at = time.process_time()
    await asyncio.gather(*(work() for _ in range(_TASKS)))
    return (time.process_time() - began_at) / _HAND_OVERS


async def nothing(item: int) -> int:
    """Do nothing with an item."""
    return item


async def beside(rounds: int, folder: Path) -> tuple[float, float]:
    """Times a bare semaphore: uncontended, and handed over."""
    free: list[float] = []
    busy: list[float] = []
    async with forebay.open(config(folder, 1)) as fb:
        semaphore = asyncio.Semaphore(1)
        for _ in range(rounds):
            for measure, ratios in ((uncontended, free), (handed_over, busy)):
                bare = await measure(lambda: semaphore)
                ratios.append(await measure(lambda: fb.slot("embed")) / bare)
    return statistics.median(free), statistics.median(busy)


async def mapped(rounds: int, folder: Path) -> float:
    """Items a second of CPU time."""
    rates = []
    async with forebay.open(config(folder, 64)) as fb:
        for _ in range(rounds):
            began_at = time.process_time()
            await fb.map_concurrent(nothing, range(_ITEMS), model="embed")
            rates.append(_ITEMS / (time.process_time() - began_at))
    return statistics.median(rates)


async def grown_mb(folder: Path) -> float:
    """How much memory grows while a slice of a long generator streams through."""
    async with forebay.open(config(folder, 64)) as fb:
        before = read = 0.0
        endless: Iterator[int] = iter(range(_ENDLESS))
        async for _ in fb.stream(nothing, endless, model="embed"):
            read += 1
            if read == _FIRST:
                before = _rss_mb()
            if read == _SLICE:
                break
        return _rss_mb() - before


def _rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_MB


def import_ms(rounds: int, statement: str) -> float:
    """CPU milliseconds of a statement in a fresh interpreter, beyond what an empty one takes."""

    def took(code: str) -> float:
        script = f"import time; t = time.process_time(); {code}; print(time.process_time() - t)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
        return float(done.stdout) * 1e3

    return statistics.median(took(statement) for _ in range(rounds))


def imported(statement: str) -> list[str]:
    """What of the gateway's a statement imports."""
    script = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return sorted(set(done.stdout.decode().split()) & set(_GATEWAY))


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name, nullcontext(Path(name)) as folder:
        free, busy = asyncio.run(beside(rounds, folder))
        rate = asyncio.run(mapped(rounds, folder))
        grown = asyncio.run(grown_mb(folder))
        requested = asyncio.run(beside_straight(rounds, folder))
    library = "import forebay; forebay.open"
    rows = [
        results.at_most(
            "slot, nobody waits", free, "× asyncio.Semaphore", 25, against=f"async with; {_ON}"
        ),
        results.at_most(
            "slot handed over to the next of 100 tasks",
            busy,
            "× asyncio.Semaphore",
            12,
            against=f"async with; {_ON}",
        ),
        results.at_least(
            f"map_concurrent of {_ITEMS:,} no-ops", rate, "items/s", 30_000, against=_ON
        ),
        results.at_most(
            f"memory, from item {_FIRST:,} to {_SLICE:,} of a generator of {_ENDLESS:,}",
            grown,
            "MB more",
            2,
            against="resident memory, stream",
        ),
        results.noted(
            "a small request through fb.http_client()",
            requested,
            "× httpx2 straight",
            against=_ON,
        ),
        results.at_most(
            "import forebay", import_ms(rounds, "import forebay"), "ms", 60, against="CPU time"
        ),
        results.noted(
            "import forebay; forebay.open", import_ms(rounds, library), "ms", against="CPU time"
        ),
        results.at_most(
            "packages of the gateway that the library imports",
            len(imported(library)),
            "",
            0,
            against=f"of {', '.join(_GATEWAY)}",
        ),
    ]
    path = results.write("library", command="make bench-library", results=rows)
    report.update()
    print(path.read_text("utf-8"))


if __name__ == "__main__":
    main()
