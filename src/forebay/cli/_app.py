"""The command line, put together from the modules of this package."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer

from forebay import cli
from forebay.errors import ForebayError

app = typer.Typer(
    name="forebay",
    no_args_is_help=True,
    # A traceback with local variables would show keys.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> None:
    """Run a command; an error that Forebay raises on purpose is a message and status 1."""
    try:
        app()
    except ForebayError as error:
        # Not at the top: mostly it is not needed.
        from rich.console import Console  # noqa: PLC0415
        from rich.markup import escape  # noqa: PLC0415

        Console(stderr=True).print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(1)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"forebay {version('forebay')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Admission control in front of your own GPUs."""


for _module in pkgutil.iter_modules(cli.__path__):
    if not _module.name.startswith("_"):
        app.command(_module.name)(
            getattr(import_module(f"{cli.__name__}.{_module.name}"), _module.name)
        )
