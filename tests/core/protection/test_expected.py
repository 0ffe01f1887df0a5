"""What chat takes alone."""

from __future__ import annotations

import random
from math import exp, log

import pytest

from forebay.core.model import Timing, TimingKind
from forebay.core.protection.expected import BLOCK, FIRST, Expected

KIND = TimingKind.FIRST_TOKEN


def reading(seconds: float, size: float = 100) -> Timing:
    return Timing(KIND, seconds, size)


def taught(seconds: float = 0.1, count: int = 40, scatter: float = 0.1) -> Expected:
    rng = random.Random(5)
    expected = Expected()
    for _ in range(count):
        expected.learn(reading(seconds * exp(rng.gauss(0, scatter))), 1.0)
    return expected


def test_nothing_is_expected_before_a_block_of_readings() -> None:
    expected = Expected()
    for _ in range(FIRST - 1):
        expected.learn(reading(0.1), 1.0)
    assert not expected.known
    assert expected.ratio(reading(0.1), 1.0) is None
    expected.learn(reading(0.1), 1.0)
    assert expected.known
    assert expected.ratio(reading(0.2), 1.0) == pytest.approx(log(2))


def test_long_prompts_are_expected_to_take_longer() -> None:
    expected = Expected()
    for n in range(64):
        size = 2.0 ** (6 + n % 5)
        expected.learn(reading(0.05 + size / 1000, size), 1.0)
    assert abs(expected.ratio(reading(0.05 + 0.6, 600), 1.0)) < 0.25


def test_at_a_rate_that_was_never_seen_nothing_is_known() -> None:
    expected = taught()
    assert expected.ratio(reading(0.1), 2.5) is not None
    assert expected.ratio(reading(0.1), 10.0) is None


def test_one_lucky_reading_changes_nothing() -> None:
    expected = taught()
    before = expected.ratio(reading(0.1), 1.0)
    expected.learn(reading(1e-9), 1.0)
    assert expected.ratio(reading(0.1), 1.0) == before


def test_the_slow_ones_and_the_tail_are_chats_own_scatter() -> None:
    expected = taught(count=128, scatter=0.2)
    assert expected.slow == pytest.approx(0.2 * 1.2, abs=0.06)
    assert expected.slow < expected.tail < 0.6


def test_a_machine_of_half_the_speed_is_believed_after_one_block() -> None:
    expected = taught()
    moves = [expected.learn(reading(0.2, 100 + n), 1.0) for n in range(BLOCK)]
    assert moves[-1] == pytest.approx(2, rel=0.1)
    assert expected.ratio(reading(0.2), 1.0) == pytest.approx(0, abs=0.1)


def test_after_another_speed_the_readings_of_both_are_left_out() -> None:
    expected = taught()
    before = expected.doubt
    for seconds in [0.1] * 8 + [0.2] * 24:
        expected.learn(reading(seconds), 1.0)
    assert expected.ratio(reading(0.2), 1.0) == pytest.approx(0, abs=0.1)
    assert expected.doubt < 2 * before


def test_a_queue_of_chats_own_is_not_taken_for_another_speed() -> None:
    expected = taught()
    moves = [expected.learn(reading(0.9 if n % 16 < 10 else 0.1), 1.0) for n in range(16)]
    assert set(moves) == {1.0}


def test_chance_is_not_taken_for_another_speed() -> None:
    rng = random.Random(7)
    expected = taught(scatter=0.3)
    moves = [expected.learn(reading(0.1 * exp(rng.gauss(0, 0.3))), 1.0) for _ in range(400)]
    assert set(moves) == {1.0}
