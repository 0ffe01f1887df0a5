"""`forebay demo`: the main job, measured on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from forebay.demo.measure import Schedule
from forebay.demo.run import run_demo
from forebay.demo.table import report_table
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.demo.report import Report


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("demo")(demo)


def demo(
    rounds: Annotated[
        int, typer.Option(min=1, help="How often the three phases follow each other.")
    ] = 3,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="Measured time of each storm; chat alone takes half.")
    ] = 8.0,
    emulated: Annotated[
        bool, typer.Option("--emulated", help="Emulate a GPU instead of running real engines.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running until Ctrl-C.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
) -> None:
    """Show what Forebay does for chat in a storm of bulk work, on real engines, right here.

    Starts llama.cpp with a tiny chat model and with MiniLM embeddings, sharing this machine's
    cores as two models share a GPU, and Forebay before them. Measures chat alone, beside a storm
    straight at the engines, and beside the same storm through Forebay. Takes about 80 seconds.
    """
    progress = Console(stderr=True)

    def show(report: Report) -> None:
        if as_json:
            print(json.dumps(report.as_dict(), indent=2))
        else:
            output = Console()
            output.print(report_table(report))
            output.print(report.sentence)

    schedule = Schedule(rounds=rounds, alone_s=seconds / 2, storm_s=seconds)
    try:
        run_demo(schedule, progress, show, emulated=emulated, keep=keep)
    except ForebayError as error:
        progress.print(f"Error: {error}", style="red", markup=False)
        raise typer.Exit(1) from error
