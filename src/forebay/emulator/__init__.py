"""An emulated GPU host: a chat and an embedding engine that share one GPU, behind real HTTP.

    async with Emulator(EmulatorSpec()).running() as host:
        client = openai.AsyncOpenAI(base_url=host.chat_url, api_key="-")
        ...
        host.record()["gpu"]["max_inflight"]

The measuring instrument of tests and of the demo: what was in flight is counted exactly, faults are
switched live, and the model (`forebay.emulator.gpu`) is small enough to be checked by hand.
"""

from forebay.emulator.faults import (
    CloseKeepalive,
    Cut,
    EngineName,
    Fault,
    Faults,
    Garbage,
    Hang,
    Html,
    Loading,
    Reset,
    Slow,
    Stall,
    Status,
    StreamError,
)
from forebay.emulator.server import Emulator, Host
from forebay.emulator.spec import ChatSpec, EmbeddingSpec, EmulatorSpec, GpuSpec, load_spec

__all__ = [
    "ChatSpec",
    "CloseKeepalive",
    "Cut",
    "EmbeddingSpec",
    "Emulator",
    "EmulatorSpec",
    "EngineName",
    "Fault",
    "Faults",
    "Garbage",
    "GpuSpec",
    "Hang",
    "Host",
    "Html",
    "Loading",
    "Reset",
    "Slow",
    "Stall",
    "Status",
    "StreamError",
    "load_spec",
]
