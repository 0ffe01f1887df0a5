"""The reader alone: requests out of bytes, whatever the pieces in which they come."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.gateway.reader import RequestReader
from forebay.proxy.refusal import Refused

POST = b"POST /v1/x?y=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nab\r\n3;ext=1\r\ncde\r\n0\r\nTrailer: t\r\n\r\n"
)
OFFER = (
    b"POST /v1/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Upgrade: h2c\r\nHTTP2-Settings: AAEA\r\nContent-Length: 5\r\n\r\nhello"
)


class Seen:
    """Takes note of all that a reader tells."""

    def __init__(self):
        self.requests = []
        self.reader = RequestReader(self)

    def on_head(self, request, *, is_http_1_1, keep_alive):
        self.requests.append([request, is_http_1_1, keep_alive, b"", False])

    def on_body(self, piece):
        self.requests[-1][3] += piece

    def on_end(self):
        self.requests[-1][4] = True

    def feed(self, *pieces):
        for piece in pieces:
            self.reader.feed(piece)

    @property
    def told(self):
        return [
            (request.method, request.path, request.query, request.headers, *rest)
            for request, *rest in self.requests
        ]


@given(st.lists(st.integers(1, len(POST + CHUNKED + OFFER) - 1), max_size=8))
def test_how_bytes_are_cut_into_pieces_changes_nothing(cuts):
    stream = POST + CHUNKED + OFFER
    edges = [0, *sorted(cuts), len(stream)]
    whole, cut = Seen(), Seen()
    whole.feed(stream)
    cut.feed(*(stream[a:b] for a, b in pairwise(edges) if a < b))
    assert cut.told == whole.told
    assert [told[-2] for told in whole.told] == [b"hello", b"abcde", b"hello"]
    assert all(told[-1] for told in whole.told)


def test_an_offer_and_all_that_belongs_to_it_is_gone():
    seen = Seen()
    seen.feed(OFFER)
    assert seen.told[0][3] == [(b"host", b"x"), (b"connection", b""), (b"content-length", b"5")]


@pytest.mark.parametrize(
    ("beginning", "more"),
    [
        (b"POST /v1/x HTTP/1.1\r\nA: ", b"x" * 1000),
        (b"POST /v1/x HTTP/1.1\r\n", b"X: y\r\n" * 100),
        (CHUNKED[: CHUNKED.index(b"Trailer")] + b"X: ", b"x" * 1000),
        (CHUNKED[: CHUNKED.index(b"Trailer")], b"X: y\r\n" * 100),
        (b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x" * 1000),
        (b"", b"\r\n" * 500),
    ],
)
def test_nothing_but_content_may_go_on_for_ever(beginning, more):
    seen = Seen()
    if beginning:
        seen.feed(beginning)
    with pytest.raises(Refused) as refused:
        seen.feed(*[more] * 1000)
    assert refused.value.status == 431


def test_content_may_go_on_as_long_as_it_is_said_to():
    seen = Seen()
    seen.feed(b"POST /v1/x HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n")
    for _ in range(3000):
        seen.feed(b"x" * 1000)
    seen.feed(POST)
    assert [len(body) for *_, body, _ in seen.told] == [3_000_000, 5]


def test_an_offer_with_a_target_that_is_none_is_refused_as_any_other():
    with pytest.raises(Refused) as refused:
        Seen().feed(b"GET http://x HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert refused.value.status == 400


def test_a_fault_of_the_receiver_is_its_own_and_no_fault_of_the_client():
    class Broken(Seen):
        def on_head(self, request, **_):
            raise LookupError(request.path)

    with pytest.raises(LookupError):
        Broken().feed(POST)


def test_a_closed_reader_tells_nothing_more_not_even_of_the_same_bytes():
    class Once(Seen):
        def on_end(self):
            super().on_end()
            self.reader.close()

    seen = Once()
    seen.feed(POST + POST)
    assert len(seen.requests) == 1
