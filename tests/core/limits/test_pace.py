"""Two levels compared: by work per second, sizes taken out."""

from __future__ import annotations

import random
from math import exp, log

import pytest

from forebay.core.limits.pace import Gain, Level, Reading, gain


def level(  # noqa: PLR0913 - by name
    inflight: int,
    *,
    fixed_s: float = 0.2,
    per_work_s: float = 0.01,
    works: list[float] | None = None,
    count: int = 100,
    cv: float = 0.0,
    seed: int = 1,
) -> Level:
    """Readings of requests that take a fixed time and a time for each unit of work."""
    rng = random.Random(seed)
    made = Level(inflight)
    for n in range(count):
        work = works[n % len(works)] if works else exp(rng.gauss(log(50), 1.0))
        seconds = (fixed_s + per_work_s * work) * exp(rng.gauss(0, cv))
        made.readings.append(Reading(work, seconds, inflight))
    return made


def test_where_nobody_waits_twice_as_many_do_twice_as_much() -> None:
    found = gain(level(4), level(8, seed=2), 80.0)
    assert found.work == pytest.approx(log(2), abs=0.03)
    assert found.slowness == pytest.approx(0, abs=0.03)


def test_where_the_others_wait_twice_as_many_do_as_much() -> None:
    found = gain(level(8), level(16, fixed_s=0.4, per_work_s=0.02, seed=2), 80.0)
    assert found.work == pytest.approx(0, abs=0.03)


def test_longer_answers_are_not_slower_ones() -> None:
    short, long = level(8, works=[10, 20, 40]), level(8, works=[400, 800])
    for work in (20.0, 200.0, 2000.0):
        assert gain(short, long, work).slowness == pytest.approx(0, abs=0.05)


def test_a_wait_before_the_answer_counts_by_what_is_usual() -> None:
    waits = level(16, fixed_s=1.2, seed=2)
    assert exp(gain(level(8), waits, 80.0).slowness) == pytest.approx(2, rel=0.1)
    assert exp(gain(level(8), waits, 2000.0).slowness) < 1.5


def test_work_that_is_not_known_counts_as_all_alike() -> None:
    lower = level(4, works=[0.0], cv=0.1)
    upper = level(8, works=[0.0], cv=0.1, seed=2)
    assert gain(lower, upper, 0.0).work == pytest.approx(log(2), abs=0.1)


@pytest.mark.parametrize(("fixed_s", "per_work_s"), [(0.0, 0.01), (0.5, 0.0)])
def test_time_may_be_all_work_or_all_fixed(fixed_s: float, per_work_s: float) -> None:
    makes = {"fixed_s": fixed_s, "per_work_s": per_work_s, "works": [1, 10, 500], "cv": 0.05}
    found = gain(level(4, **makes), level(8, seed=2, **makes), 100.0)
    assert found.work == pytest.approx(log(2), abs=0.1)


@pytest.mark.parametrize("cv", [0.1, 0.4])
def test_the_error_is_about_how_far_off_it_is(cv: float) -> None:
    off = []
    errors = []
    for seed in range(100):
        found = gain(
            level(8, count=32, cv=cv, seed=seed), level(8, count=32, cv=cv, seed=seed + 1000), 80.0
        )
        off.append(found.work)
        errors.append(found.error)
    scatter = (sum(x * x for x in off) / len(off)) ** 0.5
    assert scatter <= sum(errors) / len(errors) <= 2.5 * scatter


def test_few_readings_say_little_and_a_pool_that_shares_its_fate_no_more() -> None:
    sure = gain(level(8), level(8, seed=2), 80.0).error
    assert gain(level(8), level(8, count=2), 80.0).error >= 1.0
    assert gain(level(8), level(8, count=10), 80.0).error > sure
    assert gain(level(64), level(64, seed=2), 80.0).error > sure


def test_sizes_that_are_all_alike_tell_little_of_others() -> None:
    alike = level(8, works=[20])
    assert gain(alike, level(8, works=[20], seed=2), 20.0).error < 0.1
    assert gain(alike, level(8, works=[20], seed=2), 400.0).error > 0.2


def test_a_limit_keeps_its_last_pools_only() -> None:
    kept = level(8, count=1000)
    assert len(kept) == 256
    assert kept.pools == 32
    assert kept.inflight == 8
    assert level(4, works=[80], count=3).seconds == pytest.approx(1.0)


def test_slowness_is_what_the_width_does_not_bring() -> None:
    assert Gain(work=0.2, width=0.5, error=0.1).slowness == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("fixed_s", "per_work_s"),
    [(-0.4, 0.01), (3.0, -0.01)],  # a start-up that would give time back; more work in less time
)
def test_times_that_no_endpoint_has_still_compare(fixed_s: float, per_work_s: float) -> None:
    works = [50.0, 100.0, 200.0]
    one = level(4, fixed_s=fixed_s, per_work_s=per_work_s, works=works)
    two = level(8, fixed_s=fixed_s, per_work_s=per_work_s, works=works, seed=2)
    found = gain(one, two, 80.0)
    assert found.work == pytest.approx(log(2), abs=0.2)
