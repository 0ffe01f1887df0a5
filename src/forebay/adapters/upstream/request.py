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


def protocol_and_host(authority: str) -> bytes:
    """The part of a head that is the same for every request to one origin."""
    return b" HTTP/1.1\r\nHost: %b\r\n" % authority.encode("ascii")


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
    sent = [pair for pair in headers if pair[0].lower() not in _OWNED]
    parts = [method, b" ", target, protocol_and_host]
    for name, value in sent:
        parts += (name, b": ", value, b"\r\n")
    lines = 3 + len(sent)  # request line, host, and the empty line
    if content_length or method in _ANTICIPATE_CONTENT:
        parts.append(b"Content-Length: %d\r\n\r\n" % content_length)
        lines += 1
    else:
        parts.append(b"\r\n")
    head = b"".join(parts)
    # One look at the whole is cheaper than one at every part.
    if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
        raise ValueError("line break or NUL in the request target or in a header")
    return head
