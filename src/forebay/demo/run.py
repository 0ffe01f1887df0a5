"""A whole demonstration: start everything, measure, say what came out, leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from forebay.demo.measure import Schedule, measure
from forebay.demo.processes import Processes
from forebay.demo.site import start_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from rich.console import Console

    from forebay.demo.report import Report
    from forebay.demo.site import Site

_BUSY_LOAD = 1.0  # processes that wanted to run, on average of the last minute


def run_demo(
    schedule: Schedule,
    console: Console,
    show: Callable[[Report], None],
    *,
    emulated: bool = False,
    keep: bool = False,
) -> None:
    """Start engines and gateway, measure, show the report; all processes end with it.

    Args:
        schedule: for how long to measure.
        console: gets the progress, and the URLs if everything is kept running.
        show: is given the report.
        emulated: emulate a GPU instead of running real engines.
        keep: leave everything running until Ctrl-C once the report is shown.

    Raises:
        DemoNotInstalled: a package that the real engines need is missing.
        ProcessFailed: something did not come up, or died.
        LoadFailed: the engines or the gateway did not answer.
    """
    with (
        _exiting_on_sigterm(),
        tempfile.TemporaryDirectory(prefix="forebay-demo-") as folder,
        Processes(Path(folder)) as processes,
    ):
        if os.getloadavg()[0] > _BUSY_LOAD:
            console.print("This machine is busy with other things: expect noise in the figures.")
        with console.status("Starting two engines, and Forebay before them"):
            site = start_site(processes, emulated=emulated)
        try:
            report = _measure(site, schedule, console)
        finally:
            processes.check()  # says why, if one of them has died
        show(report)
        if keep:
            _stay(site, console)


def _measure(site: Site, schedule: Schedule, console: Console) -> Report:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        bar = progress.add_task("", total=schedule.phases)
        started = 0

        def on_phase(name: str) -> None:
            nonlocal started
            progress.update(bar, description=f"Measuring {name}", completed=started)
            started += 1

        workload = site.host.workload
        return asyncio.run(measure(site.host.engines, site.governed, workload, schedule, on_phase))


def _stay(site: Site, console: Console) -> None:
    engines = site.host.engines
    console.print(
        f"Still running, until Ctrl-C:\n"
        f"  Forebay        {site.gateway.base_url}   (models {engines.chat_model}, "
        f"{engines.embedding_model})\n"
        f"  its status     {site.gateway.url}/forebay/status\n"
        f"  its metrics    {site.gateway.url}/metrics\n"
        f"  chat engine    {engines.chat_url}\n"
        f"  embeddings     {engines.embedding_url}\n"
        f"  configuration  {site.gateway.config}",
        highlight=False,
    )
    with suppress(KeyboardInterrupt):
        signal.pause()


@contextmanager
def _exiting_on_sigterm() -> Iterator[None]:
    """Make a polite kill unwind like Ctrl-C does, so that what was started is stopped."""

    def leave(signum: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
