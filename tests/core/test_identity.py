"""Vectors of one model are alike, and those of another are told from them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.identity import Identity, Likeness, cosine_of

numbers = st.floats(-100, 100, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-3)
vectors = st.lists(numbers, min_size=1, max_size=32).filter(any)


@given(vectors, st.floats(0.01, 100))
def test_length_does_not_count(vector, factor):
    assert cosine_of(vector, [factor * x for x in vector]) == pytest.approx(1)
    assert cosine_of(vector, [-x for x in vector]) == pytest.approx(-1)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=32))
def test_the_cosine_is_symmetric_and_one_of_an_angle(pairs):
    one, other = zip(*pairs, strict=True)
    assert -1 <= cosine_of(one, other) <= 1
    assert cosine_of(one, other) == pytest.approx(cosine_of(other, one))


@pytest.mark.parametrize("nothing", [[0.0, 0.0], [math.inf, 1.0], [math.nan, 1.0]])
def test_what_has_no_direction_is_like_nothing(nothing):
    assert cosine_of(nothing, [1.0, 1.0]) == 0
    assert cosine_of(nothing, nothing) == 0


def test_the_first_vector_is_what_others_are_compared_with():
    identity = Identity(0.98)
    assert identity.judge("a", [1.0, 0.0], 0).same
    assert identity.reference.endpoint_id == "a"
    assert identity.judge("b", [2.0, 0.1], 0).same
    assert not identity.judge("c", [0.0, 1.0], 0).same
    assert identity.reference.endpoint_id == "a"
    assert identity.unfit(0) == {"c"}


def test_a_vector_without_a_direction_is_no_reference():
    identity = Identity(0.98)
    assert not identity.judge("a", [0.0, 0.0], 0).same
    assert identity.reference is None


@pytest.mark.parametrize(("degrees", "same"), [(11, True), (12, False)])
def test_min_cosine_is_the_border(degrees, same):
    identity = Identity(0.98)
    identity.judge("a", [1.0, 0.0], 0)
    angle = math.radians(degrees)
    verdict = identity.judge("b", [math.cos(angle), math.sin(angle)], 0)
    assert (verdict.same, verdict.cosine) == (same, pytest.approx(math.cos(angle)))


def test_another_number_of_dimensions_is_another_model():
    identity = Identity(0.01)
    identity.judge("a", [1.0, 0.0], 0)
    verdict = identity.judge("b", [1.0, 0.0, 0.0], 0)
    assert not verdict.same
    assert verdict.reason == "3 dimensions, and a has 2"


def test_one_that_is_different_is_looked_at_again_after_a_minute_and_one_that_is_not_never():
    identity = Identity(0.98)
    identity.judge("a", [1.0, 0.0], 0)
    identity.judge("b", [0.0, 1.0], 0)
    assert not identity.verdict("b", 59).same
    assert identity.verdict("b", 60) is None
    assert identity.unfit(60) == frozenset()
    assert identity.verdict("a", 1e9).same
    assert identity.verdict("c", 0) is None


def test_what_cannot_be_compared_may_be_trusted():
    identity = Identity(0.98)
    identity.judge("a", [1.0, 0.0], 0)
    assert identity.verdict("b", 1) is None
    assert identity.trust("b", "it embeds no probe", 1).same
    assert identity.verdict("b", 1).reason == "it embeds no probe"
    assert identity.unfit(1) == set()


def test_an_endpoint_that_went_is_compared_anew_when_it_comes_and_the_reference_stays():
    identity = Identity(0.98)
    identity.judge("a", [1.0, 0.0], 0)
    identity.judge("b", [0.0, 1.0], 0)
    identity.keep({"b"})
    assert identity.verdict("a", 1) is None
    assert identity.reference.endpoint_id == "a"
    assert identity.unfit(1) == {"b"}


def test_an_endpoint_that_was_away_is_compared_anew():
    identity = Identity(0.98)
    identity.judge("a", [1.0, 0.0], 0)
    identity.doubt("a")
    assert identity.verdict("a", 1) is None
    assert not identity.judge("a", [0.0, 1.0], 1).same, "the reference is what it was"
    identity.doubt("nobody")


def test_an_endpoint_that_cannot_be_compared_is_used_or_not_and_both_are_remembered():
    identity = Identity(0.98)
    identity.judge("a", [1.0, 0.0], 0)
    assert identity.last("b") is None
    assert identity.trust("b", "no vectors", 0).same
    assert not identity.reject("c", "no vectors", 0).same
    assert identity.unfit(0) == {"c"}
    assert (identity.last("c").likeness, identity.last("c").reason) == (
        Likeness.INCOMPARABLE,
        "no vectors",
    )
    assert identity.last("c") is not None  # however long ago
    assert identity.unfit(1000) == frozenset()
