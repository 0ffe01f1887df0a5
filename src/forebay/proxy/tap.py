"""Reads along in an answer: when its first token came, how fast the others, what was used.

It looks at bytes as they pass and never changes, holds back or joins them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from forebay.adapters.engines.status import stream_error
from forebay.core.model import Timing, TimingKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core.model import Outcome

_WORK = TimingKind.WORK
_OUTPUT_TOKEN = TimingKind.OUTPUT_TOKEN
_PROMPT = re.compile(rb'"(?:prompt_tokens|input_tokens)"\s*:\s*(\d{1,12})')
_COMPLETION = re.compile(rb'"(?:completion_tokens|output_tokens)"\s*:\s*(\d{1,12})')
# Usage stands at the beginning or at the end of a body.
_LOOK_BYTES = 4096
# An event with something in it; comments and empty events say nothing.
_EVENT = re.compile(rb"(?:^|[\r\n])data:[ \t]*[^\s]")
_EVENT_END = re.compile(rb"\r?\n\r?\n|\r\r")
# OpenAI's streams of tokens; other APIs' streams end in ways of their own.
_TOKENS = re.compile(rb'"object"\s*:\s*"(?:chat\.completion\.chunk|text_completion)"')
_OTHER_OBJECT = re.compile(rb'"object"\s*:\s*"(?!error")')
_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"|data:\s*\[DONE\]')
_FEWEST_GAPS = 2
# How many of a stream's last pieces are kept; more than one so that they are seldom thrown away.
_MOST_PIECES, _FEWEST_PIECES = 128, 16
# How a piece begins that is blank, or a comment.
_SAYS_NOTHING = (b"", b":")


class StreamTap:
    """Reads along in a stream of server-sent events.

    Attributes:
        events: how many have come.
        first_at: when the first one came.
        last_at: when anything but a comment came last.
    """

    __slots__ = ("_pieces", "clock", "events", "first_at", "last_at")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.events = 0
        self.first_at = 0.0
        self.last_at = 0.0
        self._pieces: list[bytes] = []

    @property
    def end(self) -> bytes:
        """The last few kilobytes."""
        return b"".join(self._pieces)[-_LOOK_BYTES:]

    def first(self, beginning: bytes) -> None:
        """The first event has arrived; `beginning` is the stream up to here."""
        self.first_at = self.last_at = self.clock()
        self.events = beginning.count(b"data:")
        self._pieces.append(beginning[-_LOOK_BYTES:])

    def see(self, piece: bytes) -> None:
        """A further piece of the stream."""
        count = piece.count(b"data:")
        pieces = self._pieces
        if len(piece) < _LOOK_BYTES:
            pieces.append(piece)
            if len(pieces) > _MOST_PIECES:
                del pieces[:-_FEWEST_PIECES]
        else:  # nothing before it is looked at any more, nor all of it
            pieces[:] = (piece[-_LOOK_BYTES:],)
        if count or piece.lstrip()[:1] not in _SAYS_NOTHING:
            self.events += count
            self.last_at = self.clock()

    def unfinished(self) -> bool:
        """Whether tokens were streamed, and the end is not where an answer ends."""
        end = self.end
        return _FINISHED.search(end) is None and _TOKENS.search(end) is not None

    @property
    def tokens(self) -> int:
        """Tokens sent: as the stream told, else one for each event."""
        end = self.end
        usage_at = end.rfind(b'"usage"')
        return (usage_at >= 0 and _count(_COMPLETION, end, usage_at)) or self.events

    def timings(self) -> tuple[Timing, ...]:
        """The time for each token after the first; none for an answer too short to tell."""
        tokens = self.tokens
        if tokens <= _FEWEST_GAPS or self.last_at <= self.first_at:
            return ()
        return (Timing(_OUTPUT_TOKEN, (self.last_at - self.first_at) / (tokens - 1), 1),)


class BodyTap:
    """Reads along in a body that is passed on piece by piece.

    Attributes:
        last: the last piece, nothing before the first one.
        last_at: when it came.
    """

    __slots__ = ("_clock", "last", "last_at")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.last = b""
        self.last_at = clock()

    def see(self, piece: bytes) -> None:
        """A further piece of the body."""
        self.last = piece
        self.last_at = self._clock()


def has_event(beginning: bytes) -> bool:
    """Whether the first whole event that says something has arrived."""
    start = _EVENT.search(beginning)
    return start is not None and _EVENT_END.search(beginning, start.end()) is not None


def is_html(beginning: bytes) -> bool:
    """Whether a body is a web page, whatever its content-type says."""
    return beginning[:64].lstrip()[:9].lower().startswith((b"<!doctype", b"<html"))


def error_alone(body: bytes) -> Outcome | None:
    """The outcome of a whole body that is nothing but an error; None if it is something else.

    Objects of the API that tell of an error, such as a failed response, say what they are.
    """
    return None if _OTHER_OBJECT.search(body) else stream_error(body)


def _count(pattern: re.Pattern[bytes], body: bytes, usage_at: int) -> int:
    """A count in the usage that begins at `usage_at`; 0 if there is none."""
    found = pattern.search(body, usage_at, usage_at + _LOOK_BYTES)
    return int(found[1]) if found else 0


def work(seconds: float, first: bytes, last: bytes, request_bytes: int) -> Timing:
    """The reading of a whole answer: against what it generated, else against what it read.

    Args:
        seconds: from sending the request to the end of the answer.
        first: its first piece.
        last: its last piece.
        request_bytes: size of the request's body, where the answer tells no usage.
    """
    body, usage_at = last, last.rfind(b'"usage"', -_LOOK_BYTES)
    if usage_at < 0:
        body, usage_at = first, first.rfind(b'"usage"', 0, _LOOK_BYTES)
    size = 0
    if usage_at >= 0:
        size = _count(_COMPLETION, body, usage_at) or _count(_PROMPT, body, usage_at)
    return Timing(_WORK, seconds, size or max(1.0, request_bytes / 4))
