"""Whether an answer has one vector for each input, in which order, and how several become one.

Most answers need nothing. That is found out by a scan that looks at the keys and leaps over the
vectors, at a tenth of the cost of decoding; what the scan does not like is decoded and judged then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from forebay.proxy.embeddings.held import InvalidAnswer
from forebay.proxy.embeddings.results import errors_of
from forebay.proxy.embeddings.vectors import (
    InvalidVector,
    to_base64,
    to_floats,
    unpacked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from forebay.proxy.embeddings.inputs import Encoding
    from forebay.proxy.embeddings.results import Failures

# The two keys with what should follow: a number, or the beginning of a vector that is not empty.
_SCAN = re.compile(rb'"(?:(index)|embedding)"\s*:\s*(?:(\d+)\s*[,}]|("|\[\s*[-\d]))?')
_BASE64_QUANTUM, _FLOAT_BYTES = 4, 4
_BROKEN = -1
_QUOTE = ord('"')
_NOTHING = msgspec.Raw(b"null")
_EMPTY = frozenset({b"null", b"[]", b'""'})
_EXCERPT_BYTES = 300

_Item = dict[str, msgspec.Raw]
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_index = msgspec.json.Decoder(int | None)
_object = msgspec.json.Decoder(dict[str, object])


@dataclass(slots=True)
class Answer:
    """One answer, understood; nothing in it is decoded further than it must be.

    Args:
        body: as it came.
        usage: its JSON.
        items: one for each input, in the inputs' order.
    """

    body: bytes
    usage: msgspec.Raw
    items: list[_Item]


class _Body(msgspec.Struct):
    data: list[_Item]
    usage: msgspec.Raw = msgspec.Raw(b"null")


_body = msgspec.json.Decoder(_Body)


def needs_nothing(body: bytes, inputs: int, encoding: Encoding | None) -> bool:
    """Whether an answer plainly is what was asked for, so that it may go to the client as it is.

    Args:
        body: the answer.
        inputs: how many inputs there were.
        encoding: what the vectors must be; None if that does not matter.
    """
    indices = vectors = position = 0
    sizes = set()
    while found := _SCAN.search(body, position):
        is_index, number, start = found.groups()
        position = found.end()
        if is_index:
            if number is None or int(number) != indices:
                return False
            indices += 1
            continue
        if start is None:
            return False
        vectors += 1
        end = body.find(b'"' if start == b'"' else b"]", position)
        given = "base64" if start == b'"' else "float"
        if end < 0 or encoding not in {None, given}:
            return False
        if encoding == "base64":
            sizes.add(_packed_bytes(body, position, end))
        position = end + 1  # neither numbers nor base64 hold keys
    return indices == vectors == inputs and len(sizes) <= 1 and _BROKEN not in sizes


def _packed_bytes(body: bytes, start: int, end: int) -> int:
    """How many bytes the base64 from `start` to `end` stands for, if they are float32 values."""
    length = end - start
    if length % _BASE64_QUANTUM or body.find(b"\\", start, end) >= 0:
        return _BROKEN
    size = length // 4 * 3 - body.count(b"=", end - 2, end)
    return size if size > 0 and size % _FLOAT_BYTES == 0 else _BROKEN


def read(body: bytes, inputs: int, encoding: Encoding | None) -> Answer:
    """Understand an answer, put its items in order, and their vectors into the encoding asked for.

    Args:
        body: the answer.
        inputs: how many inputs there were.
        encoding: what the vectors must be; None leaves them as they are.

    Raises:
        InvalidAnswer: some input has no vector, or it cannot be told which one it is.
    """
    try:
        decoded = _body.decode(body)
    except msgspec.MsgspecError as error:
        beginning = body[:_EXCERPT_BYTES].decode("utf-8", "replace")
        raise InvalidAnswer(f"no list of embeddings ({error}): {beginning}") from None
    if len(decoded.data) != inputs:
        raise InvalidAnswer(f"{len(decoded.data)} embeddings for {inputs} inputs")
    items = _in_order(decoded.data)
    sizes = set()
    for index, item in enumerate(items):
        try:
            sizes.add(_convert(item, encoding))
        except InvalidVector as invalid:
            raise InvalidAnswer(f"embedding {index} is not valid: {invalid}") from None
    if len(sizes) > 1:
        raise InvalidAnswer("the embeddings differ in length")
    return Answer(body, decoded.usage, items)


def _in_order(items: list[_Item]) -> list[_Item]:
    """The items by index; as they are if none has one."""
    try:
        indices = [_index.decode(item.get("index", b"null")) for item in items]
    except msgspec.MsgspecError as error:
        raise InvalidAnswer(f"an index is none: {error}") from None
    if all(index is None for index in indices):
        return items
    by_index = dict(zip(indices, items, strict=True))
    try:
        return [by_index[index] for index in range(len(items))]
    except KeyError as missing:
        raise InvalidAnswer(f"no embedding has the index {missing}") from None


def _convert(item: _Item, encoding: Encoding | None) -> int:
    """Bring the item's vector into `encoding`; return the bytes of one in base64, else 0."""
    given = item.get("embedding", _NOTHING)
    if len(given) <= len(_NOTHING) and bytes(given) in _EMPTY:
        raise InvalidVector("it is empty")
    as_text = memoryview(given)[0] == _QUOTE
    if encoding is None or not (as_text or encoding == "base64"):
        return 0
    embedding = bytes(given)
    if encoding == "float":
        item["embedding"] = msgspec.Raw(to_floats(embedding))
        item.pop("encoding_format", None)  # llama.cpp tells it with every item
        return 0
    if not as_text:
        item["embedding"] = msgspec.Raw(embedding := to_base64(embedding))
    return len(unpacked(embedding))


def merged(answers: Sequence[tuple[int, Answer]], failures: Sequence[Failures] = ()) -> bytes:
    """One answer out of several: the first one's fields, usage summed up.

    Args:
        answers: in the inputs' order, each with the index of its first input.
        failures: inputs that none of them has; told in a list of ``errors``.
    """
    items = []
    for start, answer in answers:
        for index, item in enumerate(answer.items, start):
            item["index"] = msgspec.Raw(b"%d" % index)
            items.append(item)
    fields: dict[str, object] = {**_fields.decode(answers[0][1].body)}
    usage = _sum(_usages(answer for _, answer in answers))
    if usage:
        fields["usage"] = usage
    fields["data"] = items
    if failures:
        fields["errors"] = errors_of(failures)
    return msgspec.json.encode(fields)


def _usages(answers: Iterable[Answer]) -> Iterable[dict[str, object]]:
    for answer in answers:
        try:
            yield _object.decode(answer.usage)
        except msgspec.MsgspecError:
            continue  # null, mostly


def _sum(counts: Iterable[dict[str, object]]) -> dict[str, object]:
    """Numbers of the same name added up, also in objects inside; of anything else the first."""
    total: dict[str, object] = {}
    for count in counts:
        for name, value in count.items():
            before = total.get(name)
            if isinstance(before, dict) and isinstance(value, dict):
                total[name] = _sum((before, value))
            elif isinstance(before, int | float) and isinstance(value, int | float):
                total[name] = before + value
            elif before is None:
                total[name] = value
    return total
