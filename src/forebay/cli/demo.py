"""``forebay demo``: the main job, measured on this machine."""

import json
from typing import Annotated

import typer

from forebay.cli._ctrl_c import raising


def demo(
    rounds: Annotated[
        int, typer.Option(min=1, help="How often the three phases follow each other.")
    ] = 3,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Measured time of each storm; chat alone takes half.")
    ] = 6.0,
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
    straight at the engines, and beside the same storm through Forebay. Takes about 75 seconds.
    """
    # Not at the top: they load an HTTP client, which no other command needs.
    from rich.console import Console  # noqa: PLC0415

    from forebay.demo.measure import Schedule  # noqa: PLC0415
    from forebay.demo.report import Report  # noqa: PLC0415
    from forebay.demo.run import run_demo  # noqa: PLC0415
    from forebay.demo.table import report_table  # noqa: PLC0415

    def show(report: Report) -> None:
        if as_json:
            print(json.dumps(report.as_dict(), indent=2), flush=True)
        else:
            console = Console()
            console.print(report_table(report))
            console.print(report.sentence)

    schedule = Schedule(rounds, storm_s=seconds)
    with raising():  # so that all processes end
        run_demo(schedule, Console(stderr=True), show, emulated=emulated, keep=keep)
