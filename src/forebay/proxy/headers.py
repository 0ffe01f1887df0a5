"""Which headers go on, each way. Hop-by-hop ones never do (RFC 9110 §7.6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.proxy.message import Headers, Request

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
# The gateway's word on these counts; its own `x-request-id` depends.
_NOT_SENT_BACK = _HOP_BY_HOP | {
    b"x-forebay-attempts",
    b"x-forebay-endpoint",
    b"x-forebay-queued-ms",
}


def to_endpoint(request: Request, *, request_id: bytes, authorization: bytes | None) -> Headers:
    """The headers of the request to an endpoint.

    Args:
        request: as the caller sent it.
        request_id: passed on as ``x-request-id``.
        authorization: the endpoint's own key, as a header value.
    """
    fields = request.fields
    dropped = (
        _with_named(_NOT_SENT_ON, request.headers) if b"connection" in fields else _NOT_SENT_ON
    )
    sent = [
        pair
        for pair in request.headers
        if pair[0] not in dropped and not pair[0].startswith(_OWN_PREFIX)
    ]
    sent += ((b"accept-encoding", b"identity"), (b"x-request-id", request_id))
    if authorization is not None:
        sent.append((b"authorization", authorization))
    return sent


def without(headers: Headers, name: bytes) -> Headers:
    """The headers that are not called `name`."""
    return [pair for pair in headers if pair[0] != name]


class Received:
    """The headers of an endpoint's answer.

    Args:
        raw: as they came, names in any case.

    Attributes:
        fields: the value by lower-case name; of several the last.
    """

    __slots__ = ("_lowered", "fields")

    def __init__(self, raw: Headers) -> None:
        self._lowered = [(name.lower(), value) for name, value in raw]
        self.fields = dict(self._lowered)

    @property
    def content_type(self) -> bytes:
        """In lower case; empty if there is none."""
        return self.fields.get(b"content-type", b"").lower()

    @property
    def is_encoded(self) -> bool:
        """Whether the body is in some content-encoding."""
        return self.fields.get(b"content-encoding", b"identity").strip().lower() not in _PLAIN

    def to_client(self, own: Headers, request_id: bytes, *, id_was_sent: bool) -> Headers:
        """The headers of the answer to a client.

        Args:
            own: the gateway's.
            request_id: of the request.
            id_was_sent: the client chose it, so it gets that one back, and not an endpoint's own.
        """
        fields = self.fields
        dropped = _NOT_SENT_BACK
        if b"connection" in fields:
            dropped = _with_named(dropped, self._lowered)
        sent = [pair for pair in self._lowered if pair[0] not in dropped]
        if b"x-request-id" not in fields:
            sent.append((b"x-request-id", request_id))
        elif id_was_sent:
            sent = [*without(sent, b"x-request-id"), (b"x-request-id", request_id)]
        sent += own
        return sent


_PLAIN = frozenset({b"", b"identity"})


def _with_named(names: frozenset[bytes], headers: Headers) -> frozenset[bytes]:
    """`names`, and those that ``Connection`` names."""
    for name, value in headers:
        if name == b"connection":
            names = names | {token.strip().lower() for token in value.split(b",")}
    return names
