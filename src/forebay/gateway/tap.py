"""Reads along in an answer: when its first token came, how fast the others, what was used.

It looks at bytes as they pass and never changes, holds back or joins them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from forebay.core.model import Timing, TimingKind

if TYPE_CHECKING:
    from collections.abc import Callable

_WORK = TimingKind.WORK
_OUTPUT_TOKEN = TimingKind.OUTPUT_TOKEN
_PROMPT = re.compile(rb'"(?:prompt_tokens|input_tokens)"\s*:\s*(\d{1,12})')
_COMPLETION = re.compile(rb'"(?:completion_tokens|output_tokens)"\s*:\s*(\d{1,12})')
# Usage stands at the beginning or at the end of a body.
_LOOK_BYTES = 4096
# An event with something in it; comments and empty events say nothing.
_EVENT = re.compile(rb"(?:^|[\r\n])data:[ \t]*[^\s]")
_EVENT_END = re.compile(rb"\r?\n\r?\n|\r\r")
_FEWEST_GAPS = 2


class StreamTap:
    """Reads along in a stream of server-sent events."""

    __slots__ = ("_last", "clock", "events", "first_at", "last_at")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.events = 0
        self.first_at = 0.0
        self.last_at = 0.0
        self._last = (b"", b"")

    def first(self, beginning: bytes) -> None:
        """The first event has arrived; `beginning` is the stream up to here."""
        self.first_at = self.last_at = self.clock()
        self.events = beginning.count(b"data:")
        self._last = (b"", beginning)

    def see(self, piece: bytes) -> None:
        """A further piece of the stream."""
        count = piece.count(b"data:")
        if count:
            self.events += count
            self.last_at = self.clock()
        self._last = (self._last[1], piece)

    def tokens(self) -> tuple[int | None, int]:
        """Prompt tokens, if the stream told; tokens sent: as told, else one for each event."""
        end = b"".join(self._last)
        if b'_tokens"' not in end:
            return None, self.events
        prompt, completion = usage(end[-_LOOK_BYTES:])
        return prompt, self.events if completion is None else completion

    def timings(self) -> tuple[Timing, ...]:
        """The time for each token after the first; none for an answer too short to tell."""
        _, tokens = self.tokens()
        if tokens <= _FEWEST_GAPS or self.last_at <= self.first_at:
            return ()
        return (Timing(_OUTPUT_TOKEN, (self.last_at - self.first_at) / (tokens - 1), 1),)


def has_event(beginning: bytes) -> bool:
    """Whether the first whole event that says something has arrived."""
    start = _EVENT.search(beginning)
    return start is not None and _EVENT_END.search(beginning, start.end()) is not None


def usage(body: bytes) -> tuple[int | None, int | None]:
    """Prompt and completion tokens that a body tells of."""
    prompt, completion = _PROMPT.findall(body), _COMPLETION.findall(body)
    return (int(prompt[-1]) if prompt else None, int(completion[-1]) if completion else None)


def work(seconds: float, first: bytes, last: bytes, request_bytes: int) -> Timing:
    """The reading of a whole answer: against what it generated, else against what it read.

    Args:
        seconds: from sending the request to the end of the answer.
        first: its first piece.
        last: its last piece.
        request_bytes: size of the request's body, where the answer tells no usage.
    """
    prompt, completion = usage(last[-_LOOK_BYTES:])
    if prompt is None:
        prompt, completion = usage(first[:_LOOK_BYTES])
    if completion:
        return Timing(_WORK, seconds, completion)
    return Timing(_WORK, seconds, prompt or max(1.0, request_bytes / 4))
