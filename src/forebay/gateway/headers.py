"""Which headers go on, each way. Hop-by-hop ones never do (RFC 9110 §7.6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.gateway.message import Headers

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# The caller's key is for the gateway; the endpoint gets its own. What the gateway must read
# (usage, errors in streams) comes uncompressed.
_NOT_SENT_ON = _HOP_BY_HOP | {
    b"accept-encoding",
    b"api-key",
    b"authorization",
    b"content-length",
    b"expect",
    b"host",
    b"x-api-key",
    b"x-request-id",
    b"x-request-timeout",
}
_OWN_PREFIX = b"x-forebay-"


def to_endpoint(
    received: Headers, *, request_id: bytes, authorization: bytes | None, identity_body: bool
) -> Headers:
    """The headers of the request to an endpoint.

    Args:
        received: the caller's, names in lower case.
        request_id: passed on as ``x-request-id``.
        authorization: the endpoint's own key, as a header value.
        identity_body: the body is sent decoded, so its content-encoding does not hold any more.
    """
    dropped = _dropped(received, _NOT_SENT_ON)
    sent = [
        pair for pair in received if pair[0] not in dropped and not pair[0].startswith(_OWN_PREFIX)
    ]
    if identity_body:
        sent = [pair for pair in sent if pair[0] != b"content-encoding"]
    sent.append((b"accept-encoding", b"identity"))
    sent.append((b"x-request-id", request_id))
    if authorization is not None:
        sent.append((b"authorization", authorization))
    return sent


def to_client(received: Iterable[tuple[bytes, bytes]], own: Headers) -> Headers:
    """The headers of the answer to a client: the endpoint's, and the gateway's `own`.

    Args:
        received: the endpoint's, names in any case.
        own: they take the place of received ones of the same name.
    """
    lowered = [(name.lower(), value) for name, value in received]
    dropped = _dropped(lowered, _HOP_BY_HOP)
    named = {name for name, _ in own}
    sent = [pair for pair in lowered if pair[0] not in dropped and pair[0] not in named]
    sent += own
    return sent


def _dropped(headers: Headers, always: frozenset[bytes]) -> frozenset[bytes]:
    """The names to leave out: `always`, and those that ``Connection`` names."""
    for name, value in headers:
        if name == b"connection":
            always = always | {token.strip().lower() for token in value.split(b",")}
    return always
