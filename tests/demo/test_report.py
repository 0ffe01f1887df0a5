"""The report says what the samples say, and says so when that is no improvement."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.demo.asking import Answer
from forebay.demo.load import PhaseResult
from forebay.demo.report import Measured, Report, percentile


def phase(*totals_s: float, tokens_per_s: float = 100.0, embeddings_per_s: float = 10.0):
    answers = tuple(Answer(total / 4, total / 100, total) for total in totals_s)
    return PhaseResult(answers, tokens_per_s, embeddings_per_s, refused=1, failures=())


def measured(total_s: float, tokens_per_s: float = 100.0, embeddings_per_s: float = 10.0):
    result = phase(total_s, tokens_per_s=tokens_per_s, embeddings_per_s=embeddings_per_s)
    return Measured.of([result])


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.001, 1))
def test_a_percentile_is_the_smallest_sample_that_enough_samples_do_not_exceed(
    samples: list[float], share: float
) -> None:
    result = percentile(samples, share)
    assert result in samples
    assert sum(sample <= result for sample in samples) >= share * len(samples)
    assert sum(sample < result for sample in samples) < share * len(samples)


def test_the_95th_percentile_of_twenty_samples_is_the_nineteenth() -> None:
    assert percentile(range(1, 21), 0.95) == 19
    assert percentile(range(1, 21), 0.5) == 10


@pytest.mark.parametrize(("samples", "share"), [([], 0.5), ([1.0], 0.0), ([1.0], 1.1)])
def test_a_percentile_of_nothing_is_an_error(samples: list[float], share: float) -> None:
    with pytest.raises(ValueError, match="no percentile"):
        percentile(samples, share)


def test_rounds_pool_their_answers_average_their_rates_and_keep_their_spread() -> None:
    result = Measured.of(
        [phase(1.0, 2.0, tokens_per_s=100.0), phase(3.0, 4.0, 5.0, tokens_per_s=300.0)]
    )
    assert result.answers == 5
    assert result.answer.p50_s == 3.0
    assert result.answer.p95_s == 5.0
    assert result.first_token.p50_s == 0.75
    assert result.output_token.p95_s == 0.05
    assert result.answer_p95_by_round_s == (2.0, 5.0)
    assert result.bulk_tokens_per_s == 200.0
    assert result.refused == 2


def test_an_improvement_is_told_with_the_numbers_of_the_run() -> None:
    report = Report(
        alone=measured(0.1, 0.0, 0.0),
        direct=measured(1.7, 800.0, 10.0),
        governed=measured(0.3, 480.0, 9.0),
    )
    assert report.slowdown(report.direct) == pytest.approx(17)
    assert report.inflation_cut == pytest.approx(8)
    assert report.bulk_kept == pytest.approx(0.6)
    assert report.embeddings_kept == pytest.approx(0.9)
    assert report.sentence == (
        "The storm made chat's answers 17.0 times as slow (p95) straight at the engines and 3.0 "
        "times through Forebay, where bulk generation kept 60% of its tokens per second and "
        "embeddings 90% of theirs."
    )


def test_a_run_without_improvement_says_so() -> None:
    report = Report(measured(0.1), measured(0.5), measured(0.5))
    assert report.sentence.startswith("This run shows no improvement: ")


def test_a_storm_that_did_not_hurt_is_not_sold_as_a_rescue() -> None:
    report = Report(measured(0.1), measured(0.11), measured(0.1))
    assert report.sentence.startswith("This run shows nothing to protect: ")


def test_an_inflation_that_is_gone_has_no_finite_cut() -> None:
    report = Report(measured(0.1), measured(0.5), measured(0.1))
    assert report.inflation_cut == math.inf
    assert report.as_dict()["inflation_cut"] is None
    json.dumps(report.as_dict(), allow_nan=False)


def test_each_round_is_compared_with_chat_alone_in_that_round() -> None:
    report = Report(
        alone=Measured.of([phase(0.1), phase(0.2)]),
        direct=Measured.of([phase(1.0), phase(1.0)]),
        governed=Measured.of([phase(0.1), phase(0.4)]),
    )
    assert report.slowdown_by_round(report.direct) == pytest.approx((10, 5))
    assert report.slowdown_by_round(report.governed) == pytest.approx((1, 2))
