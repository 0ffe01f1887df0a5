"""What a request for embeddings asks for: its inputs, and the encoding of the vectors.

The inputs stay JSON as it came; they are told apart by their first byte, and never decoded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

import msgspec

from forebay.gateway.refusal import Refused
from forebay.gateway.size import TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.gateway.look import Look

Encoding = Literal["float", "base64"]

# Each costs memory and time of its own, many times its bytes if it is short.
_MOST_INPUTS = 65_536
_FIRST = re.compile(rb"\[\s*(.)", re.DOTALL)
_LIST_THEN_OTHER = re.compile(rb"\]\s*,\s*[^\[\s]")
_texts = msgspec.json.Decoder(list[str])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL, _SPACE, _QUOTE = b"null", b" \t\r\n", ord('"')
# Beside its inputs a piece is no larger than the request but for brackets and an encoding.
_AROUND_BYTES = 40
_FLOAT = msgspec.Raw(b'"float"')
_ENCODINGS: dict[bytes, Encoding] = {b'"float"': "float", b'"base64"': "base64"}
_KINDS = {
    b'"': "a text",
    b"[": "a list",
    b"{": "an object",
    b"n": "null",
    b"t": "a boolean",
    b"f": "a boolean",
}


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
    if len(body) > 2 * _MOST_INPUTS and body.count(b",") >= _MOST_INPUTS:
        _check_count(bytes(look.input))
    items, are_tokens = _items_of(look.input, body)
    encoding = bytes(look.encoding_format)
    return Inputs(
        request=body,
        json=look.input,
        items=items,
        are_tokens=are_tokens,
        encoding="float" if encoding in {b"", _NULL} else _ENCODINGS.get(encoding),
        drops_null_encoding=encoding == _NULL,
    )


def _items_of(raw: msgspec.Raw, body: bytes) -> tuple[Sequence[msgspec.Raw], bool]:
    """The items of the input, none if it is a single one; and whether they are token ids."""
    start = bytes(memoryview(raw)[:1])
    if not start:
        if _has_messages(body):
            return (), False
        raise _invalid("is missing; give a text or a list of texts")
    if start == b'"':
        _check_text(raw, None)
        return (), False
    if start != b"[":
        raise _invalid(f"is {_kind(raw)}; give a text or a list of texts")
    items = _items.decode(raw)
    if not items:
        raise _invalid("is an empty list; give at least one text")
    start = bytes(items[0])[:1]
    if start == b'"':
        _check_texts(items)
        return items, False
    if start == b"[":
        _check_token_lists(items)
        return items, True
    _check_flat(items)
    return (), True


def _check_count(raw: bytes) -> None:
    """See that a long list has not too many inputs, before anything is made of each."""
    first = _FIRST.match(raw)
    if first is None:  # no list, or an empty one
        return
    if first[1] == b'"':
        # A quote that begins a text follows no backslash, so this finds at least half of them.
        count = (raw.count(b'"') - raw.count(b'\\"')) // 2
        if count <= _MOST_INPUTS:
            try:
                count = len(_texts.decode(raw))
            except msgspec.ValidationError as error:
                raise _invalid(f"is not a list of texts alone: {error}") from None
    elif first[1] == b"[":
        if _LIST_THEN_OTHER.search(raw):
            raise _invalid("is not a list of lists of token ids alone")
        count = raw.count(b"[") - 1
    else:  # one document of token ids, or nothing valid
        count = raw.count(b",") + 1
    if count > _MOST_INPUTS:
        raise _invalid(f"has over {_MOST_INPUTS:,} items; send fewer at once")


def _has_messages(body: bytes) -> bool:
    """Whether it is a chat that is to be embedded, as vLLM does."""
    try:
        return "messages" in _fields.decode(body)
    except msgspec.DecodeError:  # a form, or nothing
        return False


def _check_text(item: msgspec.Raw, index: int | None) -> None:
    text = bytes(item)
    if not text.startswith(b'"'):
        raise _invalid(f"is {_kind(item)}, but must be a text", index)
    if text == b'""':
        raise _invalid("is an empty text; leave it out", index)


def _check_texts(items: Sequence[msgspec.Raw]) -> None:
    if {memoryview(item)[0] for item in items} == {_QUOTE} and min(map(len, items)) > len('""'):
        return  # the usual case, without a copy of each
    for index, item in enumerate(items):
        _check_text(item, index)


def _check_token_lists(items: Sequence[msgspec.Raw]) -> None:
    for index, item in enumerate(items):
        tokens = bytes(item)
        if not tokens.startswith(b"["):
            raise _invalid(f"is {_kind(item)}, but must be a list of token ids", index)
        # It is known to be JSON: what has nothing else in it is a list of whole numbers.
        if tokens.translate(None, _SPACE + b",0123456789") != b"[]":
            raise _invalid("must hold whole numbers, as token ids are", index)
        if not tokens.strip(b"[]" + _SPACE):
            raise _invalid("is an empty list of token ids; leave it out", index)


def _check_flat(items: Sequence[msgspec.Raw]) -> None:
    """One document, as a list of token ids."""
    for index, item in enumerate(items):
        if not bytes(item).isdigit():
            wanted = "a token id, as those before it are" if index else "a text or a token id"
            raise _invalid(f"is {_kind(item)}, but must be {wanted}", index)


def _count_text(json: msgspec.Raw | bytes) -> int:
    return max(1, len(json) // TOKEN_BYTES)


def _count_ids(json: msgspec.Raw | bytes) -> int:
    return bytes(json).count(b",") + 1


def _kind(item: msgspec.Raw) -> str:
    return _KINDS.get(bytes(item)[:1], "a number")


def _invalid(problem: str, index: int | None = None) -> Refused:
    where = "" if index is None else f"[{index}]"
    return Refused(400, f"input{where} {problem}", code="invalid_input", param="input")
