"""The ``forebay`` command.

Each command is one module of this package, and one function in it that has the module's name; its
docstring is its help. Modules that begin with an underscore are not commands.
"""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from forebay.errors import ForebayError

app = typer.Typer(
    name="forebay",
    no_args_is_help=True,
    # A traceback with local variables would show keys.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; an error that Forebay raises on purpose is a message and status 1."""
    try:
        app()
    except ForebayError as error:
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


for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        app.command(_module.name)(
            getattr(import_module(f"{__name__}.{_module.name}"), _module.name)
        )
