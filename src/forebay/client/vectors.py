"""Vectors as they come in an answer, and as callers get them: arrays, where numpy is there."""

from __future__ import annotations

from base64 import b64decode
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from struct import unpack
from typing import Any

_FLOAT32 = "<f4"  # as OpenAI's API packs them
_FLOAT_BYTES = 4


def unpacked(base64: str) -> Any:  # noqa: ANN401 - an array, or a list
    """One vector."""
    packed = b64decode(base64)
    numpy = _numpy()
    if numpy is None:
        return list(unpack(f"<{len(packed) // _FLOAT_BYTES}f", packed))
    return numpy.frombuffer(packed, dtype=_FLOAT32).copy()  # one that may be written to


def stacked(rows: list[Any]) -> Any:  # noqa: ANN401 - likewise
    """All vectors as one array, of a row for each."""
    numpy = _numpy()
    if numpy is None:
        return rows
    if not rows:
        return numpy.empty((0, 0), dtype=_FLOAT32)
    return numpy.stack(rows)


@cache
def _numpy() -> Any:  # noqa: ANN401 - a module, or None
    return import_module("numpy") if find_spec("numpy") else None
