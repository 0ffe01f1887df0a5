"""Ends an answer that stands still for too long, at one loop timer for the whole of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from forebay.adapters.upstream import Response


class Tap(Protocol):
    """Knows when something was said last.

    Attributes:
        last_at: that, on the loop's clock.
    """

    last_at: float


class Silence:
    """Watches an answer: something must be said every `most_s`, and all of it before `deadline`.

    The time that is spent waiting for the client is not the endpoint's silence.

    Args:
        loop: the running loop.
        response: what is ended, as one that did not go on in time.
        tap: knows when something was said last.
        most_s: the longest silence.
        deadline: when the answer must be over.
    """

    __slots__ = (
        "_deadline",
        "_handle",
        "_loop",
        "_most_s",
        "_response",
        "_since",
        "_tap",
        "_waits",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        response: Response,
        tap: Tap,
        *,
        most_s: float,
        deadline: float,
    ) -> None:
        self._loop = loop
        self._response = response
        self._tap = tap
        self._most_s = most_s
        self._deadline = deadline
        self._waits = False  # for the client
        # When that ended last; it may have been waited for before this watch began.
        self._since = loop.time()
        self._handle = loop.call_at(self._due(), self._check)

    def stop(self) -> None:
        """Watch no longer."""
        self._handle.cancel()

    def pause(self) -> None:
        """The client is waited for."""
        self._waits = True

    def resume(self) -> None:
        """The client has caught up."""
        self._waits = False
        self._since = self._loop.time()

    def _due(self) -> float:
        heard_at = self._loop.time() if self._waits else max(self._tap.last_at, self._since)
        return min(heard_at + self._most_s, self._deadline)

    def _check(self) -> None:
        due = self._due()
        now = self._loop.time()
        if due > now:
            self._handle = self._loop.call_at(due, self._check)
        else:
            self._response.time_out(self._most_s)
