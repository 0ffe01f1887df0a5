"""Which engine a server is, from what it answers to a few harmless reads."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from forebay.adapters.engines.base import METRICS, MODEL_LISTS
from forebay.adapters.engines.unknown import Unknown
from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from forebay.adapters.engines.base import Engine
    from forebay.adapters.engines.reply import Reply

# Most telling first: one read settles most engines.
PROBES = (METRICS, *MODEL_LISTS, "/props", "/info", "/api/ps")


async def detect(get: Callable[[str], Awaitable[Reply]], engines: Iterable[Engine]) -> Engine:
    """Find the engine that fits; `Unknown` when the server answers but fits none.

    Args:
        get: reads one path of the server, e.g. `Pages.get`.
        engines: the candidates.

    Raises:
        ScrapeFailed: when the server could not be reached, or is not well enough to tell.
    """
    candidates = tuple(engines)
    replies: dict[str, Reply] = {}
    for path in PROBES:
        replies[path] = await get(path)
        for candidate in candidates:
            if candidate.fits(replies):
                return candidate
    metrics = replies[METRICS]
    in_trouble = metrics.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not metrics.absent
    if in_trouble and not any(reply.ok for reply in replies.values()):
        raise ScrapeFailed(f"{METRICS} answered {metrics.status}")
    return Unknown()
