"""Whether the input of a request for embeddings is one that a server can make sense of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from forebay.proxy.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

# Each costs memory and time of its own, many times its bytes if it is short.
_MOST_INPUTS = 65_536
_FIRST = re.compile(rb"\[\s*(.)", re.DOTALL)
_LIST_THEN_OTHER = re.compile(rb"\]\s*,\s*[^\[\s]")
_texts = msgspec.json.Decoder(list[str])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SPACE, _QUOTE = b" \t\r\n", ord('"')
_KINDS = {
    b'"': "a text",
    b"[": "a list",
    b"{": "an object",
    b"n": "null",
    b"t": "a boolean",
    b"f": "a boolean",
}


def items_of(raw: msgspec.Raw, body: bytes) -> tuple[Sequence[msgspec.Raw], bool]:
    """The items of the input, none if it is a single one; and whether they are token ids.

    Args:
        raw: the input's JSON.
        body: the request that it is in.

    Raises:
        Refused: no server takes it.
    """
    if len(body) > 2 * _MOST_INPUTS and body.count(b",") >= _MOST_INPUTS:
        _check_count(bytes(raw))
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


def _kind(item: msgspec.Raw) -> str:
    return _KINDS.get(bytes(item)[:1], "a number")


def _invalid(problem: str, index: int | None = None) -> Refused:
    where = "" if index is None else f"[{index}]"
    return Refused(400, f"input{where} {problem}", code="invalid_input", param="input")
