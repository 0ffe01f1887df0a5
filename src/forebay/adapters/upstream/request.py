"""The head of a request, in one piece of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# The connection and the framing belong to this hop (RFC 9110 section 7.6.1); `expect` would make
# the server wait for a consent that this client does not need to ask for.
_OWNED = frozenset(
    {
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"connection",
        b"te",
        b"keep-alive",
        b"upgrade",
        b"expect",
    }
)
# Methods that anticipate content say so when there is none (RFC 9110 section 8.6).
_ANTICIPATE_CONTENT = frozenset({b"POST", b"PUT", b"PATCH"})
_END = (b"", b"")  # of a head, in lines


def protocol_and_host(authority: str) -> bytes:
    """The part of a head that is the same for every request to one origin: a line's end, a line."""
    return b" HTTP/1.1\r\nHost: %b" % authority.encode("ascii")


def encode_head(
    method: bytes,
    target: bytes,
    headers: Sequence[tuple[bytes, bytes]],
    content_length: int,
    protocol_and_host: bytes,
) -> bytes:
    """Write a request head; see `Upstream.send` for what is added and what is left out.

    Raises:
        ValueError: a method, target or header that would not stay within its line.
    """
    if not target or b" " in target or b" " in method:
        raise ValueError(f"not a request line: {method!r} {target!r}")
    lines = [b"%b %b%b" % (method, target, protocol_and_host)]
    lines += [b": ".join(pair) for pair in headers if pair[0].lower() not in _OWNED]
    if content_length or method in _ANTICIPATE_CONTENT:
        lines.append(b"Content-Length: %d" % content_length)
    lines += _END
    head = b"\r\n".join(lines)
    # One look at the whole is cheaper than one at every part.
    breaks = len(lines)  # that in `protocol_and_host` among them
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks or b"\0" in head:
        raise ValueError("line break or NUL in the request target or in a header")
    return head
