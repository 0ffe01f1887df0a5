"""However a request is cut, every input is asked for once, in order, and nothing is too large."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.adapters.engines.batching import BatchLimits
from forebay.proxy.embeddings import inputs
from forebay.proxy.embeddings.known import KnownEndpoint
from forebay.proxy.embeddings.piece import Attempts
from forebay.proxy.embeddings.remaining import Remaining
from forebay.proxy.look import Look, look_at
from forebay.proxy.message import Request


@dataclass
class Told:
    batch_limits: BatchLimits = field(default_factory=BatchLimits)


@dataclass
class Target:
    scraper: Told
    piece_tokens: int | None = None
    id: str = "m@a"
    name: str = "endpoint 'm@a'"
    batch_limits: BatchLimits = field(default_factory=BatchLimits)


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
endpoints = st.lists(
    st.builds(
        endpoint,
        limits,
        max_inputs=limits,
        max_tokens=limits,
        max_body_bytes=st.none() | st.integers(60, 4000),
    ),
    min_size=1,
    max_size=3,
)


def assert_fits(piece, wanted, *, split):
    """Its endpoint takes the piece; a single input always goes."""
    if piece.inputs == 1:
        return
    limits, tokens = piece.known.limits, wanted.tokens(piece.start, piece.stop)
    most = piece.known.target.piece_tokens if split else None
    assert most is None or tokens <= most
    assert tokens <= (limits.max_tokens or tokens)
    assert piece.inputs <= (limits.max_inputs or piece.inputs)
    size = len(wanted.body(piece.start, piece.stop, as_float=False))
    assert size <= (limits.max_body_bytes or size)


@given(texts, endpoints, st.booleans(), st.data())
def test_pieces_are_every_input_once_and_none_is_larger_than_it_may_be(value, known, split, data):
    """Whichever endpoint gets a piece, and however often it fails and goes to another one."""
    wanted = read(value)
    remaining = Remaining(wanted, in_pieces=split)
    asked = []
    while remaining:
        most_tokens = remaining.next_tokens(known)
        piece = remaining.take(data.draw(st.sampled_from(known)), most_tokens)
        assert wanted.tokens(piece.start, piece.stop) <= most_tokens
        assert_fits(piece, wanted, split=split)
        match data.draw(st.integers(0, 6)):
            case 0 if remaining.halve(piece, "max_inputs"):
                continue
            case 1:
                remaining.put_back(piece)
                continue
            case 2 if piece.inputs > 1:
                remaining.fewer_at_once(piece)
                continue
        remaining.passed(piece)
        asked += range(piece.start, piece.stop)
    assert sorted(asked) == list(range(len(value)))
    assert asked == sorted(asked)


@given(texts, st.integers(1, 80), st.integers(1, 80))
def test_a_piece_that_failed_is_cut_anew_for_the_endpoint_that_gets_it_next(value, first, second):
    wanted = read(value)
    remaining = Remaining(wanted, in_pieces=False)
    one, other = endpoint(max_inputs=first), endpoint(max_inputs=second)
    piece = remaining.take(one, remaining.next_tokens([one, other]))
    assert piece.inputs == min(first, len(value))
    remaining.put_back(piece)
    again = remaining.take(other, remaining.next_tokens([one, other]))
    assert (again.start, again.inputs) == (0, min(second, len(value)))


def at(id_, **limits):
    return KnownEndpoint(Target(Told(BatchLimits(**limits)), id=id_))


@given(texts, st.lists(limits, min_size=2, max_size=4), st.data())
def test_inputs_come_back_to_where_they_failed_only_if_all_that_is_left_failed_there(
    value, most, data
):
    """Whoever is free meanwhile, each input is asked for until it is answered, and then no more."""
    wanted = read(value)
    remaining = Remaining(wanted, in_pieces=False)
    known = [at(f"m@{n}", max_inputs=limit) for n, limit in enumerate(most)]
    failed_at = [set() for _ in value]
    asked = []
    while remaining:
        left = [n for n in range(len(value)) if n not in asked]
        free = data.draw(st.sampled_from(known))
        piece = remaining.take(free, remaining.next_tokens(known))
        id_, places = free.target.id, range(piece.start, piece.stop)
        assert_fits(piece, wanted, split=False)
        assert not set(places) & set(asked)
        assert all(failed_at[n] == piece.attempts.avoid for n in places)
        if id_ in piece.attempts.avoid:
            assert all(id_ in failed_at[n] for n in left)
        elif data.draw(st.booleans()):
            remaining.put_back(piece, Attempts(piece.attempts.avoid | {id_}))
            for n in places:
                failed_at[n].add(id_)
            continue
        asked += places
    assert sorted(asked) == list(range(len(value)))


def test_pieces_that_failed_at_one_endpoint_are_one_piece_at_the_next():
    remaining = Remaining(read(["x"] * 9), in_pieces=False)
    small, large = at("m@a", max_inputs=3), at("m@b")
    pieces = [remaining.take(small, 1000) for _ in range(3)]
    for piece in (pieces[1], pieces[0], pieces[2]):
        remaining.put_back(piece, Attempts(frozenset({"m@a"})))
    assert remaining.take(large, remaining.next_tokens([small, large])).inputs == 9


@given(texts, st.integers(1, 80))
def test_a_piece_ends_only_where_the_next_input_has_no_room(value, most):
    wanted = read(value)
    remaining, known = Remaining(wanted, in_pieces=True), endpoint(most)
    while remaining:
        piece = remaining.take(known, remaining.next_tokens([known]))
        if piece.stop < len(value):
            assert wanted.tokens(piece.start, piece.stop + 1) > most


def ask(remaining, known, refuses):
    """Ask for all that remains, one piece after the other; who is to blame, after how many."""
    culprits, pieces = [], 0
    while remaining:
        piece = remaining.take(known, remaining.next_tokens([known]))
        pieces += 1
        if not refuses(piece):
            remaining.passed(piece)
        elif not remaining.halve(piece, "max_inputs"):
            culprits += range(piece.start, piece.stop)
    return culprits, pieces


@given(st.integers(2, 400), st.data())
def test_inputs_that_are_refused_in_any_company_are_found_in_few_steps(count, data):
    bad = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))
    known = endpoint()
    remaining = Remaining(read(["x"] * count), in_pieces=False)
    culprits, pieces = ask(remaining, known, lambda p: bad & set(range(p.start, p.stop)))
    assert culprits == sorted(bad)
    assert pieces <= 1 + 2 * len(bad) * math.ceil(math.log2(count))
    assert known.limits == BatchLimits(), "it was no batch's size"


@given(st.integers(2, 400), st.data())
def test_a_batch_that_is_too_large_is_halved_until_it_passes_and_its_size_is_kept(count, data):
    most = data.draw(st.integers(1, count - 1))
    known = endpoint()
    remaining = Remaining(read(["x"] * count), in_pieces=False)
    culprits, pieces = ask(remaining, known, lambda p: p.inputs > most)
    assert culprits == []
    assert 1 <= known.limits.max_inputs <= most
    assert known.limits.max_inputs >= most // 2
    assert pieces <= 2 * math.ceil(math.log2(count)) + math.ceil(2 * count / most) + 2


def test_halves_are_bounded():
    """Whatever an endpoint refuses."""
    remaining = Remaining(read(["x"] * 5000), in_pieces=False)
    culprits, pieces = ask(remaining, endpoint(), lambda _: True)
    assert culprits == list(range(5000))
    assert pieces <= 257


@pytest.mark.parametrize(
    ("measure", "limits"),
    [
        ("max_inputs", BatchLimits(max_inputs=4)),
        ("max_tokens", BatchLimits(max_tokens=40)),
        ("max_body_bytes", BatchLimits(max_body_bytes=229)),
    ],
)
def test_the_size_that_is_kept_is_of_the_kind_that_was_doubted(measure, limits):
    known = endpoint()
    wanted = read(["x" * 38] * 7)
    remaining = Remaining(wanted, in_pieces=False)
    remaining.halve(remaining.take(known, 1000), measure)
    for _ in range(2):
        remaining.passed(remaining.take(known, 1000))
    assert known.limits == limits
    whole = Remaining(wanted, in_pieces=False)
    assert whole.take(known, 1000).inputs == 4


def test_halves_that_pass_elsewhere_were_too_large_together_for_who_refused_the_whole():
    one, other = endpoint(), KnownEndpoint(Target(Told(BatchLimits(max_inputs=3)), id="m@b"))
    remaining = Remaining(read(["x"] * 8), in_pieces=False)
    remaining.halve(remaining.take(one, 1000), "max_inputs", after_failure=True)
    pieces = [remaining.take(known, 1000) for known in (one, other, other)]
    assert [piece.inputs for piece in pieces] == [4, 3, 1]
    assert [piece.after_failure for piece in pieces] == [True, False, False]
    for piece in pieces:
        assert one.limits == BatchLimits()
        remaining.passed(piece)
    assert one.limits == BatchLimits(max_inputs=4)
    assert other.limits == BatchLimits(max_inputs=3)


def test_an_input_is_asked_for_once_more_at_each_endpoint_whoever_gets_it_in_between():
    first, second = endpoint(), endpoint()
    second.target.id = "m@b"
    remaining = Remaining(read(["x", "y"]), in_pieces=False)
    remaining.halve(remaining.take(first, 100), "max_tokens")
    asked = []
    for known in (first, second, first, second):
        piece = remaining.take(known, 1)
        asked.append(piece.after_failure)
        remaining.once_more(piece)
    assert asked == [False, False, True, True]
