"""Which endpoints an open session of this process already governs.

Two sessions over one endpoint would each admit its whole budget. A GPU does not know which part of
a process a request comes from, so this is the one thing in the library that is process-wide.
"""

from __future__ import annotations

import os
import weakref
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from forebay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forebay.client.home import Home


class Claims:
    """Endpoints by base URL, each with the session that governs it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew: a forked child has no session yet, and may have copied a locked lock."""
        self._lock = Lock()
        self._holders: dict[str, weakref.ref[Home]] = {}

    @contextmanager
    def held(self, base_urls: Iterable[str], home: Home) -> Iterator[None]:
        """Claim these endpoints for a session, until the block is left.

        Raises:
            UsageError: an open session has one of them.
        """
        urls, mine = frozenset(base_urls), weakref.ref(home)
        with self._lock:
            for url in sorted(urls):
                self._check_free(url)
            self._holders.update(dict.fromkeys(urls, mine))
        try:
            yield
        finally:
            with self._lock:
                for url in urls:
                    if self._holders.get(url) is mine:
                        del self._holders[url]

    def _check_free(self, url: str) -> None:
        holder = self._holders.get(url)
        home = holder() if holder else None
        if home is not None and not home.gone:
            raise UsageError(
                f"{url} is governed by a session that is open in this process; a second one would "
                "double its budget: share the open session, or let both go through the gateway "
                "(forebay serve)"
            )


CLAIMS = Claims()
os.register_at_fork(after_in_child=CLAIMS.forget)
