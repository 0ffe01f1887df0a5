"""Vectors between JSON's numbers and base64 of little-endian float32, bit for bit."""

from __future__ import annotations

import binascii
import struct
from math import isfinite

import msgspec

_FLOAT_BYTES = 4
_floats = msgspec.json.Decoder(list[float])
_text = msgspec.json.Decoder(str)


class InvalidVector(Exception):  # noqa: N818 - what is wrong, to go into a message
    """An embedding that is none."""


def to_base64(embedding: bytes) -> bytes:
    """JSON of a list of numbers → JSON of base64.

    Raises:
        InvalidVector: it is no list of numbers that float32 can hold.
    """
    try:
        values = _floats.decode(embedding)
        packed = struct.pack(f"<{len(values)}f", *values)
    except (msgspec.MsgspecError, OverflowError, struct.error) as error:
        raise InvalidVector(f"no list of float32 numbers: {error}") from None
    return b'"' + binascii.b2a_base64(packed, newline=False) + b'"'


def to_floats(embedding: bytes) -> bytes:
    """JSON of base64 → JSON of a list of numbers.

    Raises:
        InvalidVector: it is not base64 of float32 values.
    """
    values = [value for (value,) in struct.iter_unpack("<f", unpacked(embedding))]
    if not all(map(isfinite, values)):
        raise InvalidVector("it holds values that are not finite, which JSON has no numbers for")
    return msgspec.json.encode(values)


def unpacked(embedding: bytes) -> bytes:
    """JSON of base64 → the bytes of the float32 values.

    Raises:
        InvalidVector: it is not base64 of float32 values.
    """
    try:
        packed = binascii.a2b_base64(_text.decode(embedding), strict_mode=True)
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise InvalidVector(f"no base64: {error}") from None
    if not packed or len(packed) % _FLOAT_BYTES:
        raise InvalidVector(f"its base64 holds {len(packed)} bytes, no whole number of float32")
    return packed
