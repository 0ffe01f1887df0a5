"""Ready-made clients of httpx, or of httpx2, over the data plane."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from forebay.client.http import transports
from forebay.errors import UsageError

if TYPE_CHECKING:
    from forebay.client.http.inside import Inside
    from forebay.client.slots import Priority

Library = Literal["httpx", "httpx2"]

# The server's name means nothing; the path leads to the API.
_BASE_URL = "http://forebay/v1"
_LIBRARIES = ("httpx2", "httpx")


class Clients:
    """Makes clients; see `Session.http_client`.

    Args:
        inside: serves their requests.
    """

    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    def asynchronous(
        self, library: Library | None, priority: Priority | None, timeout: float | None
    ) -> Any:  # noqa: ANN401 - of a library that need not be there
        """Make an ``AsyncClient``."""
        httpx = _module(library)
        transport = transports.asynchronous(httpx)(self._inside, _headers(priority))
        return httpx.AsyncClient(**_options(transport, timeout))

    def synchronous(
        self, library: Library | None, priority: Priority | None, timeout: float | None
    ) -> Any:  # noqa: ANN401 - of a library that need not be there
        """Make a ``Client``."""
        httpx = _module(library)
        transport = transports.synchronous(httpx)(self._inside, _headers(priority))
        return httpx.Client(**_options(transport, timeout))


def _options(transport: Any, timeout: float | None) -> dict[str, Any]:  # noqa: ANN401
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise ValueError(f"timeout is {timeout!r}; it must be seconds above 0, or None")
    # Without `trust_env` a proxy in the environment would not take the requests elsewhere.
    return {
        "transport": transport,
        "base_url": _BASE_URL,
        "timeout": timeout,
        "trust_env": False,
    }


def _headers(priority: Priority | None) -> list[tuple[bytes, bytes]]:
    if priority is None:
        return []
    if priority != "best-effort":
        raise ValueError(f"priority is {priority!r}; it can be 'best-effort' or None")
    return [(b"x-forebay-priority", b"best-effort")]


def _module(library: Library | None) -> Any:  # noqa: ANN401
    """The module that is asked for; else the one that the installed `openai` is made with."""
    if library is not None and library not in _LIBRARIES:
        raise ValueError(f"library is {library!r}; it can be 'httpx', 'httpx2' or None")
    for name in (library,) if library else _preferred():
        if find_spec(name) is not None:
            return import_module(name)
    missing = library or "httpx2"
    raise UsageError(
        f"an HTTP client needs {missing}, which is not installed: pip install {missing}"
    )


def _preferred() -> tuple[str, ...]:
    try:
        needs = [re.split(r"[^\w-]", need, maxsplit=1)[0] for need in requires("openai") or ()]
    except PackageNotFoundError:
        needs = []
    return tuple(sorted(_LIBRARIES, key=lambda name: name not in needs))
