"""``forebay serve``: the gateway."""

from pathlib import Path
from typing import Annotated

import typer

from forebay.config import load
from forebay.errors import ConfigError


def serve(
    config: Annotated[
        Path | None,
        typer.Option("--config", help="The file. Default: FOREBAY_CONFIG, or the user's own."),
    ] = None,
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
    # Not at the top: it loads the whole server, which no other command needs.
    from forebay.gateway.serve import serve as run  # noqa: PLC0415

    run(load(config), host=host, port=port)
