"""``forebay serve``: the gateway."""

from typing import Annotated

import typer

from forebay.cli._file import FileArgument, FileOption, the_one
from forebay.errors import ConfigError


def serve(
    file: FileArgument = None,
    config: FileOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8080,
    workers: Annotated[int, typer.Option(help="Processes; only 1 is possible yet.")] = 1,
) -> None:
    """Run the gateway: OpenAI's API in front of the configured endpoints."""
    if workers != 1:
        raise ConfigError(
            f"--workers {workers}: each process would admit the whole budget of a GPU on its own, "
            f"{workers} times as much as it can take; run one"
        )
    path = the_one(file, config)
    # Not at the top: they load the whole server, which no other command needs.
    from forebay.config import load  # noqa: PLC0415
    from forebay.gateway.serve import serve as run  # noqa: PLC0415

    run(load(path), host=host, port=port)
