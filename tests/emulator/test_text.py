from __future__ import annotations

import math
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.emulator import text


@pytest.mark.parametrize(
    ("content", "tokens"), [("", 1), ("abc", 1), ("abcd", 1), ("x" * 400, 100)]
)
def test_four_characters_are_a_token(content: str, tokens: int) -> None:
    assert text.count_tokens(content) == tokens


@given(st.text(), st.integers(1, 200))
def test_an_answer_counts_as_many_tokens_as_were_generated(prompt: str, tokens: int) -> None:
    answer = "".join(islice(text.tokens_of_answer(prompt, seed=3), tokens))
    assert text.count_tokens(answer) == tokens


@given(st.text())
def test_an_answer_ends_after_half_to_one_and_a_half_times_the_typical(prompt: str) -> None:
    assert 50 <= text.output_tokens(prompt, typical=100, seed=0) <= 150


@given(st.text(), st.integers(1, 64))
def test_vectors_have_length_one(content: str, dimensions: int) -> None:
    vector = text.floats(text.unit_vector(content, dimensions=dimensions, seed=0))
    assert len(vector) == dimensions
    assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)


def test_another_seed_is_another_model() -> None:
    vectors = {text.unit_vector("same", dimensions=4, seed=seed) for seed in range(5)}
    assert len(vectors) == 5
