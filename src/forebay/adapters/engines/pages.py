"""The pages of one server that scrapes read, and what it turned out not to have."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from forebay.adapters.engines.base import METRICS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forebay.adapters.engines.reply import Reply

    Fetch = Callable[[str], Awaitable[Reply]]


class Pages:
    """Reads paths of one server for one model.

    A path that the server does not offer is asked for once and then remembered, until `forget`.

    Args:
        root: where the server's paths begin, e.g. ``http://gpu-a.lan:8000``.
        model: named to servers that hold several models and want to know which.
        fetch: reads a URL; raises `ScrapeFailed` when it cannot.
        metrics_url: where ``/metrics`` is, if not under `root` (Triton: port 8002).
    """

    def __init__(
        self, root: str, model: str, fetch: Fetch, *, metrics_url: str | None = None
    ) -> None:
        self._root = root.rstrip("/")
        self._model = model
        self._fetch = fetch
        self._metrics_url = metrics_url
        self._absent: dict[str, Reply] = {}
        self._by_model = False

    async def get(self, path: str) -> Reply:
        """Read `path`, or give the remembered answer if the server does not have it."""
        if path in self._absent:
            return self._absent[path]
        reply = await self._fetch(self._url(path))
        if _asks_for_model(reply) and not self._by_model:
            self._by_model = True
            reply = await self._fetch(self._url(path))
        if reply.absent:
            self._absent[path] = reply
        return reply

    def forget(self) -> None:
        """Ask again for everything: the server may be another one now."""
        self._absent.clear()
        self._by_model = False

    def _url(self, path: str) -> str:
        url = self._root + path
        if path == METRICS and self._metrics_url is not None:
            url = self._metrics_url
        if not self._by_model:
            return url
        # llama.cpp's router would load a model just to answer with its metrics.
        query = urlencode({"model": self._model, "autoload": "false"})
        return f"{url}{'&' if '?' in url else '?'}{query}"


def _asks_for_model(reply: Reply) -> bool:
    """Whether this is the answer of llama.cpp's router to a read that does not name a model."""
    return reply.status == HTTPStatus.BAD_REQUEST and b"model" in reply.body[:4096]
