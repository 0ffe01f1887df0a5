from __future__ import annotations

from math import inf

import pytest

from forebay.core.limits.engine import EngineWord
from forebay.core.model import EngineState, Signal


def heard(*, saturated: bool | None, at: float = 100.0, **more: EngineState) -> EngineWord:
    word = EngineWord(stale_s=15.0)
    word.hear(Signal("test", at, saturated=saturated, **more), at)
    return word


def test_an_engine_that_never_reported_holds_nothing_and_calls_for_nothing() -> None:
    word = EngineWord(stale_s=15.0)
    assert word.holds_growth(1e6) is None
    assert not word.calls_for_cut(1e6, last_cut_at=-inf)


def test_a_queue_calls_for_a_cut_and_holds_growth() -> None:
    word = heard(saturated=True)
    assert word.calls_for_cut(101.0, last_cut_at=-inf)
    assert word.holds_growth(101.0) == "engine queue"


def test_a_scrape_from_before_the_last_cut_calls_for_nothing() -> None:
    assert not heard(saturated=True).calls_for_cut(101.0, last_cut_at=100.0)


def test_a_queue_that_was_answered_calls_again_after_a_while_or_when_it_is_a_new_one() -> None:
    word = heard(saturated=True)
    word.answer(101.0)
    word.hear(Signal("test", 105.0, saturated=True), 105.0)
    assert not word.calls_for_cut(105.0, last_cut_at=101.0)
    assert word.calls_for_cut(111.0, last_cut_at=101.0)
    word.hear(Signal("test", 106.0, saturated=False), 106.0)
    word.hear(Signal("test", 107.0, saturated=True), 107.0)
    assert word.calls_for_cut(107.0, last_cut_at=101.0)


@pytest.mark.parametrize("saturated", [None, False])
def test_no_queue_and_an_unknown_one_are_no_reason(saturated: bool | None) -> None:
    word = heard(saturated=saturated)
    assert not word.calls_for_cut(100.0, last_cut_at=-inf)
    assert word.holds_growth(115.0) is None


@pytest.mark.parametrize("state", [EngineState.ASLEEP, EngineState.LOADING])
def test_an_engine_that_does_not_serve_is_not_congested(state: EngineState) -> None:
    word = heard(saturated=True, state=state)
    assert not word.calls_for_cut(100.0, last_cut_at=-inf)
    assert word.holds_growth(100.0) is None


def test_an_old_word_holds_growth_and_calls_for_nothing() -> None:
    word = heard(saturated=True)
    assert not word.calls_for_cut(115.1, last_cut_at=-inf)
    assert word.holds_growth(115.1) == "engine metrics are stale"
    word.forget()
    assert word.holds_growth(115.1) is None


def test_a_clock_that_jumps_back_leaves_no_word_from_the_future() -> None:
    word = heard(saturated=False)
    word.turn_back(5.0)
    assert word.holds_growth(20.1) == "engine metrics are stale"
