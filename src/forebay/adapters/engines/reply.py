"""What a server answered to one read, and how to look into it without trusting it."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BODY_BYTES = 4 * 1024 * 1024
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete HTTP response to a GET.

    Args:
        status: the HTTP status.
        headers: the response's headers, in any case.
        body: the body as it came over the wire; it may be gzip.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether it is a success."""
        return self.status // 100 == 2  # noqa: PLR2004 - 2xx

    @property
    def absent(self) -> bool:
        """Whether the server says that it does not offer this at all."""
        return self.status in {404, 405, 501}

    def text(self) -> str:
        """The body as text, without a byte order mark.

        Raises:
            ScrapeFailed: when it is broken gzip, or larger than `MAX_BODY_BYTES` once unpacked.
        """
        body = self.body
        # The bytes decide, not Content-Encoding: proxies unpack and forget to drop the header, and
        # pack without adding it.
        if body.startswith(_GZIP_MAGIC):
            body = _unpack(body)
        if len(body) > MAX_BODY_BYTES:
            raise ScrapeFailed(f"body of {len(body)} bytes is over the limit of {MAX_BODY_BYTES}")
        return body.decode("utf-8-sig", errors="replace")

    def json(self) -> object:
        """The body as JSON; None when it is not JSON."""
        try:
            return parse_json(self.text())
        except ScrapeFailed:
            return None


def parse_json(text: str) -> object:
    """Decode JSON from a source that is not trusted; None when it is not JSON."""
    try:
        decoded: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return decoded


def as_dict(value: object) -> dict[str, object]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """`value` if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def as_number(value: object) -> float | None:
    """`value` if it is a finite JSON number of a size that a float holds, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def as_count(value: object) -> int | None:
    """`value` if it is a whole number above zero, else None."""
    number = as_number(value)
    return int(number) if number is not None and number >= 1 else None


def header(headers: Mapping[str, str], name: str) -> str:
    """The value of a header whatever its case; empty when it is absent."""
    found = headers.get(name)
    if found is not None:
        return found
    wanted = name.lower()
    return next((value for key, value in headers.items() if key.lower() == wanted), "")


def _unpack(body: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # 16: expect a gzip header
    try:
        # One byte over the limit is enough to see that it is over, and bounds a gzip bomb.
        return unpacker.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise ScrapeFailed(f"broken gzip: {error}") from error
