"""Forebay: admission control in front of your own GPUs.

async with forebay.open("config.json") as fb:
    async with fb.slot("bge-m3") as lease:
        ...  # send the request to lease.endpoint.base_url
    vectors = await fb.map_concurrent(embed, texts, model="bge-m3")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from forebay.errors import (
    CallbackError,
    ConfigError,
    ForebayError,
    ItemsError,
    Rejected,
    RequestFailed,
    UsageError,
)

if TYPE_CHECKING:
    from forebay.client import (
        Lease,
        Progress,
        Retry,
        Session,
        open,  # noqa: A004 - the public name
        open_sync,
    )

    __version__: str

__all__ = [
    "CallbackError",
    "ConfigError",
    "ForebayError",
    "ItemsError",
    "Lease",
    "Progress",
    "Rejected",
    "RequestFailed",
    "Retry",
    "Session",
    "UsageError",
    "__version__",
    "open",
    "open_sync",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attributes are of any type
    # Late, because every command and the gateway import this package too, and need none of it.
    if name in {"Lease", "Progress", "Retry", "Session", "open", "open_sync"}:
        return getattr(import_module("forebay.client"), name)
    if name == "__version__":
        return import_module("importlib.metadata").version("forebay")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
