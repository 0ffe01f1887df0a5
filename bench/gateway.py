"""The gateway benchmark: Forebay beside its peers, before one backend, on one core each.

Every round starts all gateways anew and gives each the same load in turn, one measure after the
other, so that two gateways' figures of one measure are seconds apart. The gateway has one core for
itself; load and backend share the other. The machine is noisy: read the ratios, which are taken
within a round, and of which the median over the rounds counts.

    python -m bench.gateway                               # all, some 20 minutes
    python -m bench.gateway --short --only forebay nginx  # a look; writes nothing
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import gateway_goals, proc, report, results
from .peers import GATEWAYS, SUBJECT, Gateway, InstallError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOAD_CORE, _GATEWAY_CORE = 0, 1
_LOAD_LIMIT_S = 180.0
_NAN = float("nan")

Report = dict[str, Any]


class LoadError(Exception):
    """A load ended without figures that count."""


@dataclass(frozen=True)
class Measure:
    """One kind of load and the figures that it gives.

    Args:
        name: of the measure.
        arguments: for `bench.load`.
        short: the same, for a quick look.
        slow: the same, for a gateway that would take minutes; None leaves it out.
        figures: figure name → how it follows from what the load reports.
    """

    name: str
    arguments: str
    short: str
    slow: str | None
    figures: dict[str, Callable[[Report], float]]


def _per_event(report: Report) -> float:
    return float(report["cpu_s"] / report["events"] * 1e5)


# First the open streams: memory that is added shows only in a process that has not grown yet.
MEASURES = (
    Measure(
        "1,000 open streams",
        "streams --streams 1000 --interval-ms 200 --seconds 8 --ramp-s 5",
        "streams --streams 1000 --interval-ms 200 --seconds 2 --ramp-s 5",
        None,
        {
            "open_added_mb": lambda report: report["rss_added_mb"],
            "open_late_max_ms": lambda report: report["late_max_ms"],
            "open_late_p99_ms": lambda report: report["late_p99_ms"],
        },
    ),
    Measure(
        "small requests",
        "closed --connections 16 --requests 16000",
        "closed --connections 16 --requests 4000",
        "closed --connections 16 --requests 160",
        {"small_cpu_us": lambda report: report["cpu_s"] / report["answered"] * 1e6},
    ),
    Measure(
        "200 streams",
        "streams --streams 200 --interval-ms 40 --seconds 10 --ramp-s 2",
        "streams --streams 200 --interval-ms 40 --seconds 3 --ramp-s 2",
        "streams --streams 20 --interval-ms 40 --seconds 5 --ramp-s 2",
        {
            "stream_cpu_s": _per_event,
            "first_p99_ms": lambda report: report["first_p99_ms"],
            "events_per_read": lambda report: report["events_per_read"],
        },
    ),
    Measure(
        "400 kB responses",
        "closed --connections 16 --requests 1000 --response-bytes 400000",
        "closed --connections 16 --requests 300 --response-bytes 400000",
        "closed --connections 16 --requests 48 --response-bytes 400000",
        {
            "large_mb_per_cpu_s": lambda report: report["received_bytes"] / 1e6 / report["cpu_s"],
        },
    ),
    Measure(
        "200 requests/s",
        "open --rate 200 --seconds 10",
        "open --rate 200 --seconds 3",
        None,
        {
            "rate_p50_ms": lambda report: report["p50_ms"],
            "rate_p99_ms": lambda report: report["p99_ms"],
        },
    ),
)
_WARM_UP = "closed --connections 4 --requests 40"


@dataclass(frozen=True)
class Contender:
    """What runs in a round; `pid` is None for the backend itself, which is not watched."""

    name: str
    url: str
    pid: int | None
    slow: bool = False


class Bench:
    """Rounds of all measures over all gateways that could be installed."""

    def __init__(self, gateways: Sequence[Gateway], *, short: bool) -> None:
        self._gateways = gateways
        self._short = short
        self._backend_port = proc.free_port()
        # gateway → figure → one value a round, NaN where it could not be had.
        self.figures: dict[str, dict[str, list[float]]] = {}
        self.problems: dict[str, str] = {}

    def run(self, rounds: int) -> None:
        """Measure; the figures grow round by round."""
        self.figures = {name: defaultdict(list) for name in self._names()}
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", flush=True)
            with ExitStack() as stack:
                self._round(self._start(stack), number)

    def _names(self) -> list[str]:
        return ["direct", *(gateway.name for gateway in self._gateways)]

    def _start(self, stack: ExitStack) -> list[Contender]:
        """Start the backend and each gateway; return what runs."""
        port = self._backend_port
        command = (sys.executable, "-m", "bench.backend", "--port", str(port))
        log = proc.CACHE / "backend.log"
        stack.enter_context(proc.running(command, core=_LOAD_CORE, port=port, log=log))
        started = [Contender("direct", f"http://127.0.0.1:{port}", None)]
        for gateway in self._gateways:
            try:
                url, pid = stack.enter_context(gateway.running(port, _GATEWAY_CORE))
                _load(url, pid, _WARM_UP)
            except (proc.StartError, LoadError) as error:
                if gateway.name == SUBJECT:
                    raise SystemExit(f"{SUBJECT} did not start: {error}") from error
                self._problem(gateway.name, f"did not start: {error}")
            else:
                started.append(Contender(gateway.name, url, pid, gateway.slow))
        return started

    def _round(self, started: list[Contender], number: int) -> None:
        turn = number % len(started)  # nobody is always first
        for measure in MEASURES:
            for name, figure in itertools.product(self._names(), measure.figures):
                self.figures[name][figure].append(_NAN)
            for contender in started[turn:] + started[:turn]:
                self._measure(measure, contender)

    def _measure(self, measure: Measure, contender: Contender) -> None:
        arguments: str | None = measure.short if self._short else measure.arguments
        if contender.slow:
            arguments = measure.slow
        if arguments is None:
            return
        try:
            report = _load(contender.url, contender.pid, arguments)
        except LoadError as error:
            self._problem(contender.name, f"{measure.name}: {error}")
            return
        for figure, value_of in measure.figures.items():
            self.figures[contender.name][figure][-1] = value_of(report)
        self._show(contender.name, measure)

    def _show(self, name: str, measure: Measure) -> None:
        shown = ", ".join(
            f"{figure} {self.figures[name][figure][-1]:.4g}" for figure in measure.figures
        )
        print(f"  {measure.name:20} {name:16} {shown}", flush=True)

    def _problem(self, name: str, text: str) -> None:
        print(f"  {name}: {text}", flush=True)
        self.problems[name] = text


def _load(url: str, pid: int | None, arguments: str) -> Report:
    """Run one load in a process of its own.

    Raises:
        LoadError: it failed, or not every request was answered.
    """
    watch = ["--watch", str(pid)] if pid else []
    command = [sys.executable, "-m", "bench.load", "--url", url, *watch, *arguments.split()]
    try:
        done = subprocess.run(
            command,
            cwd=proc.ROOT,
            capture_output=True,
            text=True,
            timeout=_LOAD_LIMIT_S,
            check=False,
            start_new_session=True,
            preexec_fn=proc.prepare(_LOAD_CORE),
        )
    except subprocess.TimeoutExpired:
        raise LoadError(f"no end after {_LOAD_LIMIT_S:.0f} s") from None
    if done.returncode:
        raise LoadError((done.stderr.strip().splitlines() or ["no output"])[-1])
    report: Report = json.loads(done.stdout)
    if report["errors"]:
        raise LoadError(f"{report['errors']} failed, first: {report['error']}")
    return report


def _install(gateways: Sequence[Gateway], problems: dict[str, str]) -> dict[str, str]:
    versions = {}
    for gateway in gateways:
        print(f"installing {gateway.name}", flush=True)
        try:
            versions[gateway.name] = gateway.install()
        except (InstallError, OSError, subprocess.SubprocessError) as error:
            problems[gateway.name] = f"not installed: {error}"
            print(f"  {problems[gateway.name]}", flush=True)
    return versions


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Forebay beside its peers.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="little load, and nothing is written")
    names = [gateway.name for gateway in GATEWAYS]
    parser.add_argument("--only", nargs="+", choices=names, help="these; nothing is written")
    return parser.parse_args()


def main() -> None:
    """Install, measure, judge; write the results and the table in the documentation."""
    arguments = _arguments()
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("the gateway needs a core of its own: two cores at least")
    proc.CACHE.mkdir(parents=True, exist_ok=True)
    wanted = [g for g in GATEWAYS if arguments.only is None or g.name in arguments.only]
    missing: dict[str, str] = {}
    versions = _install(wanted, missing)
    bench = Bench([g for g in wanted if g.name in versions], short=arguments.short)
    bench.run(1 if arguments.short else arguments.rounds)
    problems = missing | bench.problems
    judged = gateway_goals.judge(bench.figures, versions, problems)
    for result in judged:
        print(f"{result.measure}: {result.value} {result.unit}, goal {result.goal}: {result.met}")
    if arguments.short or arguments.only:
        return
    path = results.write(
        "gateway",
        command=f"make bench-gateway (python -m bench.gateway --rounds {arguments.rounds})",
        results=judged,
        versions=versions,
        details=gateway_goals.details(bench.figures, problems),
    )
    report.update()
    print(f"wrote {path}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end with it
    main()
