"""The same request under another model's name, for an endpoint that calls its model differently.

Only the name is exchanged; every other byte stays. That is why nothing is decoded and encoded again
here: whitespace, the order of keys, numbers and escapes would not survive it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

import msgspec

from forebay.proxy.look import form_models, is_form

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.proxy.message import Request

_KEY = b"model"
# Possessive (`*+`), so that a text of megabytes is neither looked at twice nor remembered.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = re.compile(_STRING + rb"|[\[{]|[\]}]", re.DOTALL)
_NAME_FOLLOWS = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*+(" + _STRING + rb"|null)", re.DOTALL)
_OPENING = frozenset({b"{", b"["})
_CLOSING = frozenset({b"}", b"]"})


def renamed(request: Request, body: bytes, model: str) -> tuple[bytes, bytes]:
    """The body and the query of a request with `model` wherever it names one.

    Args:
        request: as it came.
        body: its body, decoded; `look_at` has understood it.
        model: what the endpoint calls it.
    """
    if not body:
        return body, _query(request.query, model)
    if is_form(request):
        kind = request.fields[b"content-type"]
        return _replaced(body, form_models(body, kind), model.encode()), request.query
    return _replaced(body, _json_models(body), msgspec.json.encode(model)), request.query


def _replaced(body: bytes, spans: Iterator[tuple[int, int]], name: bytes) -> bytes:
    kept = 0
    pieces: list[bytes] = []
    for start, stop in spans:
        pieces += (body[kept:start], name)
        kept = stop
    return b"".join((*pieces, body[kept:]))


def _json_models(body: bytes) -> Iterator[tuple[int, int]]:
    """Where the values of the outermost object's ``model`` are: of all, if it is there twice."""
    depth = 0
    for token in _TOKEN.finditer(body):
        text = token[0]
        if text in _OPENING:
            depth += 1
        elif text in _CLOSING:
            depth -= 1
        elif depth == 1 and _is_key(text):
            value = _NAME_FOLLOWS.match(body, token.end())
            if value is not None:
                yield value.span(1)


def _is_key(string: bytes) -> bool:
    """Whether a JSON string is ``model``, perhaps written with escapes."""
    inner = string[1:-1]
    if inner == _KEY:
        return True
    # The longest way to write it is six characters for each of its own.
    is_short = b"\\" in inner and len(inner) <= 6 * len(_KEY)
    return is_short and msgspec.json.decode(string) == _KEY.decode()


def _query(query: bytes, model: str) -> bytes:
    parts = query.split(b"&")
    named = b"model=" + quote(model, safe="").encode()
    return b"&".join(
        named if unquote_to_bytes(part.partition(b"=")[0]) == _KEY else part for part in parts
    )
