"""``forebay check``: is the configuration what you meant?"""

from typing import Annotated

import typer

from forebay.cli._file import FileArgument, FileOption, the_one


def check(  # noqa: PLR0913, PLR0917 - each is an option
    file: FileArgument = None,
    config: FileOption = None,
    ask: Annotated[
        bool,
        typer.Option("--probe", help="Look sources up; ask each endpoint whether it serves."),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the file's JSON Schema, for editors.")
    ] = False,
) -> None:
    """Validate the configuration and show what it comes to. Starts nothing.

    Exit status 1: it must not start, an endpoint or a source failed its probe, or --strict met a
    warning.
    """
    from forebay.cli import _report  # noqa: PLC0415 - it loads all that a configuration needs

    if schema:
        _report.print_schema()
    elif not _report.report(the_one(file, config), ask=ask, strict=strict, as_json=as_json):
        raise typer.Exit(1)
