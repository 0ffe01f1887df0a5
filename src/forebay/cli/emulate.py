"""``forebay emulate``: an emulated GPU host, served until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path  # noqa: TC003 - typer reads it at run time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from forebay.emulator import Emulator


def emulate(
    spec: Annotated[
        Path | None, typer.Option(help="JSON file with the host's numbers; see docs/emulator.md.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65534, help="Chat's port; embeddings get the next one. 0: free ports."
        ),
    ] = 8100,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the URLs as one line of JSON when ready.")
    ] = False,
) -> None:
    """Serve an emulated GPU that a chat model and an embedding model share."""
    # Not at the top: it loads an HTTP server, which no other command needs.
    from forebay.emulator import Emulator, EmulatorSpec, load_spec  # noqa: PLC0415

    emulator = Emulator(EmulatorSpec() if spec is None else load_spec(spec))
    asyncio.run(_serve(emulator, host, port, as_json=as_json))


async def _serve(emulator: Emulator, host: str, port: int, *, as_json: bool) -> None:
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    async with emulator.running(host, port) as running:
        if as_json:
            print(json.dumps(running.urls()), flush=True)
        else:
            _tell(running.urls())
        await stop.wait()


def _tell(urls: dict[str, str]) -> None:
    print(f"Chat        {urls['chat_url']}  (model {urls['chat_model']})")
    print(f"Embeddings  {urls['embed_url']}  (model {urls['embed_model']})")
    print(f"Record      {urls['control_url']}/emulator/record")
    print(f"Faults      {urls['control_url']}/emulator/faults")
    print("Stop with Ctrl-C.", flush=True)
