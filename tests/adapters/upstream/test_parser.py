"""However the network cuts a response, it means the same."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from forebay.adapters.upstream.parser import BROKEN, DONE, ResponseParser

CHUNKS = [b"data: one\n\n", b"\r\n", b"data: [DONE]\n\n"]
INTERIM = b"HTTP/1.1 100 Continue\r\nX: interim\r\n\r\n"
HEAD = b"HTTP/1.1 200 Fine\r\nA: 1\r\na:\r\nTransfer-Encoding: chunked\r\n\r\n"
FRAMED = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(c), c) for c in CHUNKS) + b"0\r\nT: 1\r\n\r\n"
RESPONSE = INTERIM + HEAD + FRAMED
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def parser_fed_with(*pieces):
    parser = ResponseParser(max_head_bytes=1024)
    parser.begin(head_only=False)
    for piece in pieces:
        parser.feed(piece)
    return parser


@given(st.sets(st.integers(1, len(RESPONSE) - 1)))
def test_cuts_do_not_matter(cuts):
    parser = parser_fed_with(*(RESPONSE[i:j] for i, j in pairwise([0, *sorted(cuts), None])))
    assert parser.phase is DONE
    assert parser.keep_alive
    assert (parser.status, parser.reason) == (200, b"Fine")
    assert parser.headers == [(b"A", b"1"), (b"a", b""), (b"Transfer-Encoding", b"chunked")]
    assert b"".join(parser.pieces) == b"".join(CHUNKS)


@given(st.sampled_from([RESPONSE, LENGTH]), st.data())
def test_a_part_is_never_taken_for_the_whole(response, data):
    part = response[: data.draw(st.integers(0, len(response) - 1))]
    parser = parser_fed_with(part)
    parser.feed_eof()
    assert parser.phase is BROKEN
    assert "connection closed" in parser.fault


@given(st.sampled_from([RESPONSE, LENGTH]), st.binary(min_size=1))
def test_bytes_behind_a_response_spoil_the_connection_only(response, junk):
    apart = parser_fed_with(response, junk)
    assert (apart.phase, apart.keep_alive) == (DONE, False)
    together = parser_fed_with(response + junk)
    assert together.phase is DONE
    # Empty lines before a response are allowed (RFC 9112 section 2.2), and change nothing.
    assert not together.keep_alive or not junk.strip(b"\r\n")


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_make_it_raise(pieces):
    parser = parser_fed_with(*pieces)
    parser.feed_eof()
    assert parser.phase in {DONE, BROKEN}


@given(st.lists(st.binary(min_size=1), max_size=50), st.integers(0, 50))
def test_unread_memory_is_counted(pieces, taken):
    parser = parser_fed_with(b"HTTP/1.1 200 OK\r\n\r\n", *pieces)
    cost_of_all = parser.unread_cost
    assert cost_of_all >= sum(map(len, pieces))
    for piece in pieces[:taken]:
        assert parser.take() == piece
    assert (parser.unread_cost == 0) is (not parser.pieces)
    assert parser.unread_cost <= cost_of_all


BODY = bytes(range(256)) * 4
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


@given(st.sets(st.integers(1, len(LONG) - 1)), st.binary(max_size=3))
def test_a_body_of_a_told_length_is_what_was_told_wherever_it_is_cut(cuts, junk):
    pieces = [LONG[i:j] for i, j in pairwise([0, *sorted(cuts), None])]
    pieces[-1] += junk
    parser = parser_fed_with(*pieces)
    assert b"".join(parser.pieces) == BODY
    assert parser.phase is DONE
    assert parser.keep_alive or junk
    if parser.keep_alive:  # the next response is read by the same parser
        parser.end()
        parser.begin(head_only=False)
        parser.feed(RESPONSE)
        assert (parser.phase, b"".join(parser.pieces)) == (DONE, b"".join(CHUNKS))
