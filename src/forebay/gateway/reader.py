"""From a client's bytes to requests, without IO: llhttp, and what a gateway decides beyond it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import httptools

from forebay.proxy.message import Request
from forebay.proxy.refusal import Refused

if TYPE_CHECKING:
    from forebay.proxy.message import Headers

# Without any of a body among them: heads, framing, trailers.
_MOST_OVERHEAD_BYTES = 64 * 1024
_OFFERS = frozenset({b"http2-settings", b"upgrade"})
_SLASH = ord("/")


class Receiver(Protocol):
    """Is told of each request, from within `RequestReader.feed`."""

    def on_head(self, request: Request, *, is_http_1_1: bool, keep_alive: bool) -> None:
        """A head is complete.

        Args:
            request: without its body.
            is_http_1_1: the client understands what came with HTTP/1.1.
            keep_alive: another request may follow (RFC 9112 section 9.3).
        """

    def on_body(self, piece: bytes) -> None:
        """Some of its body has come."""

    def on_end(self) -> None:
        """The request is whole."""


class RequestReader:
    """Parses the requests of one connection.

    An offer to speak another protocol is passed over (RFC 9110 section 7.8). llhttp takes what
    follows it for the other protocol, but it is the body of the request: Java's client, for one,
    offers HTTP/2 with whatever it sends first.

    Args:
        receiver: is told what comes.

    Attributes:
        in_head: a head has begun and is not complete.
    """

    __slots__ = ("_headers", "_overhead_bytes", "_parser", "_receiver", "_url", "in_head")

    def __init__(self, receiver: Receiver) -> None:
        self._receiver: Receiver | None = receiver
        self._parser: httptools.HttpRequestParser | None = self._new_parser()
        self._url = b""
        self._headers: Headers = []
        self.in_head = False
        self._overhead_bytes = 0  # in a row

    def feed(self, data: bytes) -> None:
        """Parse what came.

        Raises:
            Refused: it is not HTTP/1.1, or asks for what is not possible here.
        """
        self._overhead_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            raise Refused(400, f"not HTTP/1.1: {error}", code="invalid_http") from None
        if self._overhead_bytes > _MOST_OVERHEAD_BYTES:
            message = f"over {_MOST_OVERHEAD_BYTES} bytes of headers or framing in a row"
            raise Refused(431, message, code="headers_too_large")

    def close(self) -> None:
        """Parse no more; also from within, when what follows does not matter."""
        self._parser = self._receiver = None  # each refers to the other

    # What llhttp calls.

    def on_message_begin(self) -> None:
        """Expect a head."""
        self.in_head = True
        self._overhead_bytes = 0
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        """Collect the request target, which may come in parts."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect headers; those behind a body are trailers, and nobody looks at them."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Tell of the request, unless it begins with an offer, which is passed over first."""
        self.in_head = False
        parser, receiver = self._parser, self._receiver
        if parser is None or receiver is None or parser.should_upgrade():
            return
        target = self._url
        if target[0] != _SLASH or b"#" in target:
            target = _origin_form(target)
        path, _, query = target.partition(b"?")
        is_http_1_1 = parser.get_http_version() == "1.1"
        headers, self._headers = self._headers, []
        receiver.on_head(
            Request(parser.get_method(), path, query, headers, b""),
            is_http_1_1=is_http_1_1,
            keep_alive=is_http_1_1 and parser.should_keep_alive(),
        )

    def on_body(self, piece: bytes) -> None:
        """Pass it on."""
        self._overhead_bytes = 0
        if self._receiver is not None:
            self._receiver.on_body(piece)

    def on_message_complete(self) -> None:
        """Tell of the end; one that is assumed behind an offer is none."""
        parser, receiver = self._parser, self._receiver
        if parser is not None and receiver is not None and not parser.should_upgrade():
            self._overhead_bytes = 0
            receiver.on_end()

    def _parse(self, data: bytes | memoryview) -> None:
        while (parser := self._parser) is not None:
            try:
                parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                parsed = offer.args[0]
            else:
                return
            # Outside of `except`: an error in a callback would be told with the offer as its cause.
            if parser.get_method() == b"CONNECT":
                raise Refused(405, "CONNECT is not possible here", code="not_allowed")
            if self._parser is not None:
                data = memoryview(data)[parsed:]
                head = self._head_without_offer(parser)
                self._parser = self._new_parser()
                self._parser.feed_data(head)

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # A client may have sent requests ahead although it asked for the connection's end.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _head_without_offer(self, parser: httptools.HttpRequestParser) -> bytes:
        version = parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (parser.get_method(), self._url, version)]
        for name, value in self._headers:
            if name == b"connection":
                options = [option.strip() for option in value.split(b",")]
                kept = b", ".join(o for o in options if o.lower() not in _OFFERS)
                lines.append(b"connection: " + kept)
            elif name not in _OFFERS:
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join(lines) + b"\r\n\r\n"


def _origin_form(target: bytes) -> bytes:
    """A request target as path and query, without scheme, host and fragment.

    Raises:
        Refused: it has no path.
    """
    try:
        parsed = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        parsed = None
    if parsed is None or not parsed.path:
        raise Refused(400, f"not a request target: {target!r}", code="invalid_http")
    return parsed.path + (b"?" + parsed.query if parsed.query else b"")
