"""How a command is told its configuration file: as its argument, or by ``--config``."""

from pathlib import Path
from typing import Annotated

import typer

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="The configuration. Default: FOREBAY_CONFIG, or the user's own.",
        show_default=False,
    ),
]
FileOption = Annotated[Path | None, typer.Option("--config", help="The same, as an option.")]


def the_one(file: Path | None, config: Path | None) -> Path | None:
    """The file that was named, if any.

    Raises:
        BadParameter: it was named in both ways.
    """
    if file is not None and config is not None:
        raise typer.BadParameter("name the file once: as the argument, or by --config")
    return file or config
