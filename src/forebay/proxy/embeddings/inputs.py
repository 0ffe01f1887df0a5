"""What a request for embeddings asks for: its inputs, and the encoding of the vectors.

The inputs stay JSON as it came; they are told apart by their first byte, and never decoded.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

import msgspec

from forebay.proxy.embeddings.validation import items_of
from forebay.proxy.size import TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.proxy.look import Look

Encoding = Literal["float", "base64"]

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL = b"null"
# Beside its inputs a piece is no larger than the request but for brackets and an encoding.
_AROUND_BYTES = 40
_FLOAT = msgspec.Raw(b'"float"')
_ENCODINGS: dict[bytes, Encoding] = {b'"float"': "float", b'"base64"': "base64"}


@dataclass(slots=True)
class Inputs:
    """A request's inputs.

    Args:
        request: the body that they came in.
        json: of all of them together; nothing where a chat is embedded.
        items: the JSON of each, or nothing if there is one that is no list's item.
        are_tokens: token ids instead of texts.
        encoding: what the client asked for; float if it did not; None for one not known here.
        drops_null_encoding: the request has an ``encoding_format`` that says nothing.
    """

    request: bytes
    json: msgspec.Raw
    items: Sequence[msgspec.Raw]
    are_tokens: bool
    encoding: Encoding | None
    drops_null_encoding: bool
    _fields: dict[str, msgspec.Raw] | None = field(default=None, init=False)
    # Tokens before each input, and of all of them.
    _tokens: list[int] = field(default_factory=list, init=False)

    def __len__(self) -> int:
        return len(self.items) or 1

    def until(self, start: int, stop: int, most_bytes: int) -> int:
        """The index at which a request for the inputs from `start` on must end to fit.

        Args:
            start: the first input's index.
            stop: the index after the last, if all of them fit.
            most_bytes: of the request.
        """
        size = self._around()
        for index in range(start, stop):
            size += len(self.items[index]) + 1
            if size > most_bytes:
                return index
        return stop

    def size(self, start: int, stop: int) -> int:
        """The most bytes that a request for the inputs from `start` to `stop` has."""
        return self._around() + sum(len(item) + 1 for item in self.items[start:stop])

    def _around(self) -> int:
        return len(self.request) - len(self.json) + _AROUND_BYTES

    def tokens(self, start: int, stop: int) -> int:
        """Roughly how many tokens the inputs from `start` to `stop` have."""
        before = self._tokens_before()
        return before[stop] - before[start]

    def until_tokens(self, start: int, stop: int, most_tokens: int) -> int:
        """As `until`, for a request of at most so many tokens."""
        before = self._tokens_before()
        return min(stop, bisect_right(before, before[start] + most_tokens) - 1)

    def _tokens_before(self) -> list[int]:
        if not self._tokens:
            count = _count_ids if self.are_tokens else _count_text
            each = map(count, self.items or (self.json or self.request,))
            self._tokens = list(accumulate(each, initial=0))
        return self._tokens

    def body(self, start: int, stop: int, *, as_float: bool) -> bytes:
        """A request for the inputs from `start` to `stop`; byte for byte the client's if it can be.

        Args:
            start: the first input's index.
            stop: the index after the last.
            as_float: ask for floats, whatever the client asked for.
        """
        whole = stop - start == len(self)
        if whole and not as_float and not self.drops_null_encoding:
            return self.request
        some = None if whole else b"[" + b",".join(self.items[start:stop]) + b"]"
        return self._with(some, as_float=as_float)

    def harmless(self, *, as_float: bool) -> bytes:
        """The client's request with one input that nobody refuses, in the place of its own."""
        return self._with(b"[[1]]" if self.are_tokens else b'["test"]', as_float=as_float)

    def _with(self, some: bytes | None, *, as_float: bool) -> bytes:
        """The request with other inputs, if there are `some`."""
        if self._fields is None:
            self._fields = _fields.decode(self.request)
        body = dict(self._fields)
        if some is not None:
            body["input"] = msgspec.Raw(some)
        if as_float:
            body["encoding_format"] = _FLOAT
        elif self.drops_null_encoding:
            del body["encoding_format"]
        return msgspec.json.encode(body)


def read(look: Look, body: bytes) -> Inputs:
    """Understand a request for embeddings.

    Args:
        look: what its body says.
        body: the body.

    Raises:
        Refused: inputs that no server takes.
    """
    items, are_tokens = items_of(look.input, body)
    encoding = bytes(look.encoding_format)
    return Inputs(
        request=body,
        json=look.input,
        items=items,
        are_tokens=are_tokens,
        encoding="float" if encoding in {b"", _NULL} else _ENCODINGS.get(encoding),
        drops_null_encoding=encoding == _NULL,
    )


def _count_text(json: msgspec.Raw | bytes) -> int:
    return max(1, len(json) // TOKEN_BYTES)


def _count_ids(json: msgspec.Raw | bytes) -> int:
    return bytes(json).count(b",") + 1
