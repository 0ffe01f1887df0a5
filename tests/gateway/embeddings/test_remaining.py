"""However a request is cut, every input is asked for once, in order, and nothing is too large."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.adapters.engines.batching import BatchLimits
from forebay.gateway.embeddings import inputs
from forebay.gateway.embeddings.known import KnownEndpoint
from forebay.gateway.embeddings.remaining import Remaining
from forebay.gateway.look import Look, look_at
from forebay.gateway.message import Request


@dataclass
class Told:
    batch_limits: BatchLimits = field(default_factory=BatchLimits)


@dataclass
class Target:
    scraper: Told
    piece_tokens: int | None = None
    id: str = "m@a"
    name: str = "endpoint 'm@a'"


def endpoint(piece_tokens=None, **limits):
    return KnownEndpoint(Target(Told(BatchLimits(**limits)), piece_tokens))


def read(value):
    body = json.dumps({"model": "m", "input": value}).encode()
    request = Request(b"POST", b"/v1/embeddings", b"", [], body)
    return inputs.read(look_at(request, body), body)


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        ("x" * 398, 100),
        (["x" * 38] * 3, 30),
        (["x"], 1),
        ([11, 12, 13], 3),
        ([[11, 12, 13], [7]], 4),
    ],
)
def test_four_bytes_are_a_token_and_a_token_id_is_one(value, tokens):
    wanted = read(value)
    assert wanted.tokens(0, len(wanted)) == tokens


def test_a_chat_to_embed_counts_as_its_request():
    body = json.dumps({"model": "m", "messages": [{"content": "x" * 400}]}).encode()
    assert inputs.read(Look(model="m"), body).tokens(0, 1) == len(body) // 4


texts = st.lists(st.integers(1, 300).map(lambda size: "x" * size), min_size=1, max_size=60)
limits = st.one_of(st.none(), st.integers(1, 80))
endpoints = st.lists(st.builds(endpoint, limits, max_inputs=limits), min_size=1, max_size=3)


@given(texts, endpoints, st.booleans(), st.data())
def test_pieces_are_every_input_once_and_none_is_larger_than_it_may_be(value, known, split, data):
    wanted = read(value)
    remaining = Remaining(wanted, in_pieces=split)
    asked = []
    while remaining:
        most_tokens = remaining.next_tokens(known)
        got = data.draw(st.sampled_from(known))
        piece = remaining.take(got, most_tokens)
        assert wanted.tokens(piece.start, piece.stop) <= most_tokens
        if piece.inputs > 1:
            most = got.target.piece_tokens if split else None
            assert most is None or wanted.tokens(piece.start, piece.stop) <= most
            assert piece.inputs <= (got.limits.max_inputs or piece.inputs)
            if data.draw(st.integers(0, 4)) == 0:
                assert remaining.ask_again(piece, 413, b"", alone=False)
                continue
        asked += range(piece.start, piece.stop)
    assert sorted(asked) == list(range(len(value)))
    assert asked == sorted(asked)


@given(texts, st.integers(1, 80))
def test_a_piece_ends_only_where_the_next_input_has_no_room(value, most):
    wanted = read(value)
    remaining, known = Remaining(wanted, in_pieces=True), endpoint(most)
    while remaining:
        piece = remaining.take(known, remaining.next_tokens([known]))
        if piece.stop < len(value):
            assert wanted.tokens(piece.start, piece.stop + 1) > most
