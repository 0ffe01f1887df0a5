"""A response whose head is here and whose body is on its way."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from forebay.adapters.upstream.parser import DONE
from forebay.adapters.upstream.sink import ACCEPTED
from forebay.errors import UpstreamError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from forebay.adapters.upstream.connection import Connection
    from forebay.adapters.upstream.pool import Pool
    from forebay.adapters.upstream.sink import Sink


class Response:
    """One response, as received.

    It owns its connection until it is settled, which happens exactly once: when `read` has returned
    the clean end, when `read` raises (cancellation included), at `abort`, or at the latest when
    nobody refers to it any more.

    Attributes:
        status: of the final response; interim ones (1xx) are skipped.
        reason: reason phrase, perhaps empty.
        headers: names and values with order, case and duplicates kept, hop-by-hop ones included.
            The body is as it was sent (`Content-Encoding` not undone), without the chunked framing.
    """

    __slots__ = (
        "_complete",
        "_completed_at",
        "_connection",
        "_pool",
        "headers",
        "reason",
        "status",
    )

    def __init__(self, connection: Connection, pool: Pool) -> None:
        self._connection: Connection | None = connection
        self._pool = pool
        self._complete = False
        self._completed_at = 0.0
        self.status = connection.parser.status
        self.reason = connection.parser.reason
        self.headers = connection.parser.headers

    def __repr__(self) -> str:
        return f"<Response {self.status}, {'complete' if self.complete else 'incomplete'}>"

    @property
    def complete(self) -> bool:
        """Whether all of it has arrived, read or not."""
        connection = self._connection
        return self._complete if connection is None else connection.parser.phase is DONE

    @property
    def completed_at(self) -> float:
        """When all of it had arrived, on the loop's clock; meaningful once it is complete."""
        connection = self._connection
        return self._completed_at if connection is None else connection.completed_at

    @property
    def exhausted(self) -> bool:
        """Whether all of it has arrived and been read."""
        connection = self._connection
        if connection is None:
            return self._complete
        return connection.parser.phase is DONE and not connection.parser.pieces

    async def read(self, timeout_s: float | None = None) -> bytes:
        """Return the next piece of the body, ``b""`` at its clean end.

        A piece is what one read from the network brought, of one chunk if the body is chunked:
        never joined with another one, and here without waiting if it arrived before.

        Args:
            timeout_s: longest wait for a piece; None waits as long as it takes.

        Raises:
            UpstreamTimeout: nothing came in time.
            UpstreamError: the body was cut short or broke the protocol. What had arrived before
                that is returned first.
        """
        connection = self._connection
        if connection is None:
            if self._complete:
                return b""
            raise UpstreamError("this response was given up", response_started=True)
        parser = connection.parser
        while not parser.pieces:
            if parser.phase is DONE or connection.error is not None:
                self._settle()
                if connection.error is not None:
                    raise connection.take_error()
                return b""
            try:
                await connection.waiter.wait(timeout_s)
            except BaseException:
                self._settle()
                raise
        return connection.take_piece()

    async def relay(self, sink: Sink) -> Awaitable[None] | None:
        """Hand every further piece to `sink` in the moment in which it arrives.

        While the sink accepts, no task is woken for a piece. Nothing limits how long the next one
        may take: see `time_out`.

        Returns:
            None at the clean end of the body; else what the sink returned when it was full, to be
            awaited before this is called again.

        Raises:
            UpstreamError: as `read` does; or whatever the sink raises.
        """
        connection = self._connection
        if connection is None:
            await self.read()  # raises if it was given up
            return None
        parser = connection.parser
        while True:
            while parser.pieces:
                accepted = sink(connection.take_piece())
                if accepted is not ACCEPTED:
                    return accepted
            if parser.phase is DONE or connection.error is not None:
                break
            try:
                full = await connection.waiter.wait(None, sink)
            except BaseException:
                self._settle()
                raise
            if full is not None:
                return full
        self._settle()
        if connection.error is not None:
            raise connection.take_error()
        return None

    def time_out(self, after_s: float) -> None:
        """Fail with `UpstreamTimeout`, after what has arrived; for callers with their own timers.

        Args:
            after_s: how long nothing had come, for the message.
        """
        if self._connection is not None:
            self._connection.time_out(after_s)

    def abort(self) -> None:
        """Have no more of it: a complete response's connection is kept, another one's closed."""
        self._settle()

    def _settle(self) -> None:
        connection = self._connection
        if connection is not None:
            self._complete = connection.parser.phase is DONE
            self._completed_at = connection.completed_at
            self._connection = None
            self._pool.give_back(connection)

    def __del__(self) -> None:
        connection = self._connection
        if connection is not None:
            # The garbage collector may run in any thread. A closed loop has closed it already.
            with suppress(RuntimeError):
                self._pool.loop.call_soon_threadsafe(self._pool.give_back, connection)
