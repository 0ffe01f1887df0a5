"""A host more and a host less, by editing the file of a gateway under load.

Three emulated hosts behind `forebay serve`, each with chat and embeddings on one GPU, under more
load than four of them can take: streamed chats, and batches of texts. Then the file is edited as an
editor does it: a fourth host comes; later one of the first three goes. Work is the tokens and the
texts that arrive at the clients. A request that does not end well, for whatever reason, has failed.

Twice: with fixed limits, and with those that learn, once the first three hosts have learned theirs.

    python -m bench.live [--limits fixed knee] [--seconds 10]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from forebay.demo.gateway import start_gateway
from forebay.demo.processes import Processes

from . import report, results
from .live_load import TEXTS, TOKENS, Load, Work

if TYPE_CHECKING:
    from forebay.demo.gateway import Gateway

_HOSTS = 3
_CEILING = 8
_BUDGET = 2 * _CEILING
# So slow that what limits is the hosts, not the cores of the machine which plays all of this.
_SPEC = {
    "chat": {"weights_s": 0.05, "max_sequences": 8},
    "embedding": {"overhead_s": 0.15, "max_batch_tokens": 2048, "max_input_tokens": 2048},
    "keepalive_s": 60,
}
# The goal is for the work within ten seconds of the edit; what comes at once says little yet.
_SETTLES_S, _WITHIN_S = 5.0, 10.0
_LEAVES_S = 60.0
_POLL_S = 0.05
_SPAN_S = 5
# What comes before anything counts: a law that learns needs some hundred answers.
_WARM_S = {"fixed": 10.0, "knee": 90.0}


class Editor:
    """Edits the gateway's file.

    Args:
        hosts: the URLs of every host.
        limit: the limit law.
    """

    def __init__(self, hosts: list[dict[str, str]], limit: str) -> None:
        self._hosts = hosts
        self._limit = limit

    def config(self, hosts: range) -> dict[str, Any]:
        """The configuration with some of the hosts."""

        def model(kind: str) -> dict[str, Any]:
            servers = [
                {"base_url": self._hosts[n][f"{kind}_url"], "gpu_group": f"gpu-{n}"} for n in hosts
            ]
            id_ = self._hosts[0][f"{kind}_model"]
            return {"id": id_, "endpoints": servers, "max_concurrent_requests": _CEILING}

        return {
            "chat_models": [model("chat")],
            "embedding_models": [model("embed")],
            "GPU_CONCURRENCY_BUDGETS": {f"gpu-{n}": _BUDGET for n in hosts},
            "forebay": {"limit": self._limit},
        }

    def edit(self, gateway: Gateway, hosts: range) -> float:
        """Put a new file in the old one's place; returns when."""
        new = gateway.config.with_suffix(".new")
        new.write_text(json.dumps(self.config(hosts), indent=2), "utf-8")
        new.replace(gateway.config)
        return time.monotonic()

    def endpoints_of(self, host: int) -> set[str]:
        """The ids that a host's two endpoints have."""
        urls = self._hosts[host]
        return {
            f"{urls[f'{kind}_model']}@{urls[f'{kind}_url'].removeprefix('http://').rpartition('/')[0]}"
            for kind in ("chat", "embed")
        }


def start(processes: Processes, limit: str) -> tuple[Gateway, Editor]:
    """Start one host more than are configured at first, and the gateway."""
    spec = processes.folder / "host.json"
    spec.write_text(json.dumps(_SPEC), "utf-8")
    command = [sys.executable, "-m", "forebay", "emulate", "--json", "--port", "0"]
    command += ["--spec", str(spec)]
    started = [processes.start(f"host-{n}", command) for n in range(_HOSTS + 1)]
    urls = [json.loads(host.await_line(r"(\{.*\})")) for host in started]
    editor = Editor(urls, limit)
    return start_gateway(processes, editor.config(range(_HOSTS))), editor


async def gone(session: aiohttp.ClientSession, url: str, endpoints: set[str]) -> float:
    """Wait until endpoints are known no more; returns when."""
    async with asyncio.timeout(_LEAVES_S):
        while True:
            async with session.get(f"{url}/forebay/status") as response:
                known = (await response.json())["endpoints"]
            if not endpoints & set(known):
                return time.monotonic()
            await asyncio.sleep(_POLL_S)


async def run(
    gateway: Gateway, editor: Editor, limit: str, seconds: float
) -> tuple[Work, list[results.Result]]:
    """Put the load on, edit twice, and judge."""
    warm_s = _WARM_S[limit]
    work, url = Work(), gateway.url
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        asyncio.TaskGroup() as tasks,
    ):
        Load(session, gateway.base_url, work).start(tasks)
        await asyncio.sleep(warm_s + seconds)
        added_at = editor.edit(gateway, range(_HOSTS + 1))
        await asyncio.sleep(seconds + _WITHIN_S)
        failed_until_then = len(work.failed)
        removed_at = editor.edit(gateway, range(1, _HOSTS + 1))
        left_s = await gone(session, url, editor.endpoints_of(0)) - removed_at
        await asyncio.sleep(seconds)
        work.over = True
    came_s = max(work.by_endpoint[id_] for id_ in editor.endpoints_of(_HOSTS)) - added_at
    on = f"{_HOSTS} emulated hosts, then {_HOSTS + 1}, through `forebay serve`, limits by `{limit}`"
    found = []
    for kind in (TOKENS, TEXTS):
        before = work.per_s(kind, added_at - seconds, added_at)
        after = work.per_s(kind, added_at + _SETTLES_S, added_at + _WITHIN_S)
        rise = 100 * (after / before - 1)
        measure = f"{limit}: {kind} per second with a 4th host, {_SETTLES_S:g} to {_WITHIN_S:g} s"
        found.append(results.at_least(f"{measure} after the edit", rise, "% more", 25, against=on))
    failed = (failed_until_then, len(work.failed) - failed_until_then)
    for what, count in zip(("4th host is added", "host is removed"), failed, strict=True):
        measure = f"{limit}: failed requests while a {what}"
        found.append(results.at_most(measure, count, "requests", 0, against=on))
    for what, took_s in (
        ("until both engines of the new host have answered", came_s),
        ("until a host that goes has finished and is gone", left_s),
    ):
        found.append(results.noted(f"{limit}: from the edit {what}", took_s, "s", against=on))
    return work, found


def timeline(work: Work) -> dict[str, list[int]]:
    """Work per second, in spans of `_SPAN_S`."""
    first, last = work.arrived[0][0], work.arrived[-1][0]
    spans = [first + n * _SPAN_S for n in range(int((last - first) / _SPAN_S))]
    return {
        kind: [round(work.per_s(kind, at, at + _SPAN_S)) for at in spans]
        for kind in (TOKENS, TEXTS)
    }


def measure(limit: str, seconds: float) -> tuple[list[results.Result], dict[str, Any]]:
    """Measure with one law; returns what was found, and the details."""
    with tempfile.TemporaryDirectory() as folder, Processes(Path(folder)) as processes:
        gateway, editor = start(processes, limit)
        work, found = asyncio.run(run(gateway, editor, limit, seconds))
        log = gateway.log.read_text("utf-8")
    details = {
        "answers": work.answers,
        "failed": work.failed[:20],
        "log": [line for line in log.splitlines() if "configuration" in line],
        f"per second, in spans of {_SPAN_S} s": timeline(work),
    }
    return found, details


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of each measurement")
    parser.add_argument("--limits", nargs="+", choices=list(_WARM_S), default=list(_WARM_S))
    parser.add_argument("--dry", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    found, details = [], {}
    for limit in arguments.limits:
        more, details[limit] = measure(limit, arguments.seconds)
        found += more
    if arguments.dry:
        print(json.dumps({"results": [str(each) for each in found], **details}, indent=1))
        return
    path = results.write("live", command="make bench-live", results=found, details=details)
    report.update()
    print(path.read_text("utf-8"))


if __name__ == "__main__":
    main()
