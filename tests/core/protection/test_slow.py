"""Statistics of few readings."""

from __future__ import annotations

import random

import pytest

from forebay.core.protection.slow import error, news, quick, spread, upper


def test_the_slow_ones_are_those_before_the_95th_percentile() -> None:
    assert upper([1, 9, 2, 8, 3, 7, 4, 5, 6, 0]) == 8.5
    assert upper([*range(19), 1000]) == 17
    assert upper([4]) == 4


def test_one_reading_has_no_spread() -> None:
    assert spread([3.0]) == 0
    assert spread([1.0, 3.0]) == pytest.approx(2**0.5)


def test_readings_that_are_all_the_same_leave_no_doubt() -> None:
    assert error([1.0] * 8) == 0


def test_the_error_is_what_repeating_shows() -> None:
    rng = random.Random(3)
    samples = [[rng.gauss(0, 1) for _ in range(64)] for _ in range(400)]
    claimed = sum(map(error, samples)) / len(samples)
    assert claimed == pytest.approx(spread([upper(each) for each in samples]), rel=0.2)


def test_the_error_of_times_with_a_long_tail_is_larger() -> None:
    rng = random.Random(3)
    samples = [[rng.expovariate(1) for _ in range(64)] for _ in range(400)]
    claimed = sum(map(error, samples)) / len(samples)
    assert claimed == pytest.approx(spread([upper(each) for each in samples]), rel=0.25)


def test_neighbours_that_are_alike_tell_less() -> None:
    rng = random.Random(3)
    value, walk = 0.0, []
    for _ in range(200):
        value = 0.8 * value + rng.gauss(0, 1)
        walk.append(value)
    assert news(walk) < 0.25
    assert error(walk) > 1.5 * error(sorted(walk, key=lambda _: rng.random()))


def test_the_quick_ones_are_not_moved_by_a_few_that_are_slow() -> None:
    assert quick([1, 2, 3, 4]) == quick([1, 2, 300, 400]) == 2
