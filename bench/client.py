"""One client connection of the load: what it sends, and what it notes about what comes back."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import httptools

from .backend import MODEL, STAMP

if TYPE_CHECKING:
    from collections.abc import Callable

_PROMPT_BYTES = 900  # with the JSON around it, a request of about 1 kB


def request(host: str, prompt: str, *, stream: bool = False) -> bytes:
    """Return one chat completion request, ready to be sent."""
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": prompt.ljust(_PROMPT_BYTES, "x")}],
            "max_tokens": 64,
            "stream": stream,
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\n"
        f"content-type: application/json\r\nauthorization: Bearer none\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass(slots=True)
class StreamTally:
    """What the events of open streams looked like on arrival, within the window that counts."""

    counting: bool = False
    events: int = 0
    reads: int = 0  # reads that carried at least one event
    lateness_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    longest_gap_ms: float = 0.0


class Connection(asyncio.Protocol):
    """One client connection: sends a request, calls back when its response has ended."""

    def __init__(self, on_end: Callable[[Connection], None], tally: StreamTally) -> None:
        self._on_end = on_end
        self._tally = tally
        self._parser = httptools.HttpResponseParser(self)
        self._stamps: list[bytes] = []
        self._last_event_ns = 0
        self._busy = False
        self.sent_at = 0.0
        self.received = 0
        self.error: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._busy:  # an idle connection may be closed at any time
            self._fail(f"connection lost: {exc or 'closed by the gateway'}")

    @property
    def open(self) -> bool:
        """Whether a request can be sent."""
        return not self.transport.is_closing()

    def send(self, payload: bytes, sent_at: float) -> None:
        """Send one request; `sent_at` is the time that its latency counts from."""
        self._busy = True
        self.sent_at = sent_at
        self._last_event_ns = 0
        if self.open:
            self.transport.write(payload)
        else:
            self._fail("the gateway closed the connection after a response")

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self._stamps.clear()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"not HTTP: {error}")
            return
        if self._stamps:
            self._note_events()

    def on_body(self, body: bytes) -> None:
        if b"@" in body:
            self._stamps += STAMP.findall(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status != 200:
            self._fail(f"status {status}")
            return
        self._busy = False
        # After the parser has returned: a new request starts with the parser at rest.
        asyncio.get_running_loop().call_soon(self._on_end, self)

    def _note_events(self) -> None:
        tally, now = self._tally, time.monotonic_ns()
        if self._last_event_ns == 0:
            tally.first_ms.append((now - int(self._stamps[0])) / 1e6)
        elif tally.counting:
            tally.longest_gap_ms = max(tally.longest_gap_ms, (now - self._last_event_ns) / 1e6)
        self._last_event_ns = now
        if tally.counting:
            tally.reads += 1
            tally.events += len(self._stamps)
            tally.lateness_ms += [(now - int(stamp)) / 1e6 for stamp in self._stamps]

    def _fail(self, error: str) -> None:
        if self.error is None:
            self._busy = False
            self.error = error
            self._on_end(self)
