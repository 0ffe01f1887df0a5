"""Which endpoints an open session of this process already governs.

Two sessions over one endpoint would each admit its whole budget. A GPU does not know which part of
a process a request comes from, so this is the one thing in the library that is process-wide.
"""

from __future__ import annotations

import os
import weakref
from threading import Lock
from typing import TYPE_CHECKING

from forebay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.client.home import Home


class Claims:
    """Endpoints by base URL, each with the session that governs it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew: a forked child has no session yet, and may have copied a locked lock."""
        self._lock = Lock()
        self._holders: dict[str, weakref.ref[Home]] = {}

    def claim(self, base_urls: Iterable[str], home: Home) -> None:
        """Claim these endpoints for a session, until it lets them go.

        Raises:
            UsageError: another open session has one of them; then none is claimed.
        """
        urls, mine = frozenset(base_urls), weakref.ref(home)
        with self._lock:
            for url in sorted(urls):
                self._check_free(url, home)
            self._holders.update(dict.fromkeys(urls, mine))

    def keep(self, base_urls: Iterable[str], home: Home) -> None:
        """Let others claim whatever this session has, but for these."""
        kept = frozenset(base_urls)
        with self._lock:
            self._holders = {
                url: holder
                for url, holder in self._holders.items()
                if url in kept or holder() is not home
            }

    def let_go_all(self, home: Home) -> None:
        """Let others claim whatever this session has."""
        self.keep((), home)

    def _check_free(self, url: str, home: Home) -> None:
        holder = self._holders.get(url)
        other = holder() if holder else None
        if other is not None and other is not home and not other.gone:
            raise UsageError(
                f"{url} is governed by a session that is open in this process; a second one would "
                "double its budget: share the open session, or let both go through the gateway "
                "(forebay serve)"
            )


CLAIMS = Claims()
os.register_at_fork(after_in_child=CLAIMS.forget)
