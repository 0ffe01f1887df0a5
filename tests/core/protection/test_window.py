"""Sure before it speaks."""

from __future__ import annotations

import random
from math import log

import pytest

from forebay.core.model import TimingKind
from forebay.core.protection.window import Verdict, Window

FIRST, OUTPUT = TimingKind.FIRST_TOKEN, TimingKind.OUTPUT_TOKEN
DOUBT = 0.03


def judged(
    *scales: float, count: int = 330, scatter: float = 0.1, seed: int = 1, doubt: float = DOUBT
):
    """The first judgement on readings of one kind or two, and how many it took."""
    rng = random.Random(seed)
    window = Window(0.0, 1.25)
    for n in range(count):
        for kind, scale in zip((FIRST, OUTPUT), scales, strict=False):
            window.add(kind, log(scale) + rng.gauss(0, scatter), 1.2 * scatter, doubt)
        found = window.judge(10.0)
        if found is not None:
            return found, n + 1
    return None, count


def test_four_times_as_slow_is_told_from_sixteen_readings() -> None:
    found, count = judged(4.0)
    assert (found.verdict, found.kind, count) == (Verdict.TOO_SLOW, FIRST, 16)
    assert found.ratio == pytest.approx(4, rel=0.1)


def test_fast_enough_takes_more_readings_where_they_scatter_more() -> None:
    steady, few = judged(1.0)
    restless, many = judged(1.0, scatter=0.4)
    assert steady.verdict is restless.verdict is Verdict.FAST
    assert 20 <= few < many


def test_what_became_slow_just_now_is_seen_however_long_it_was_fast() -> None:
    window = Window(0.0, 1.25)
    for _ in range(100):
        window.add(FIRST, 0.2, 0.1, DOUBT)  # about at the target
    window.judge(10.0)
    for _ in range(12):
        assert window.judge(10.0) is None
        window.add(FIRST, 1.5, 0.1, DOUBT)
    assert window.judge(10.0).verdict is Verdict.TOO_SLOW


def test_at_the_target_it_takes_as_many_as_there_may_be() -> None:
    found, count = judged(1.25)
    assert (found.verdict, count) == (Verdict.RIGHT, 320)


def test_chat_alone_of_which_little_is_known_holds_nothing_up_for_ever() -> None:
    found, count = judged(1.1, doubt=0.5)
    assert (found.verdict, count) == (Verdict.FAST, 320)


def test_a_hair_above_the_target_is_right_however_sure() -> None:
    found, count = judged(1.27, count=1000, scatter=0.01, doubt=0.001)
    assert (found.verdict, count) == (Verdict.RIGHT, 320)


@pytest.mark.parametrize(("scale", "count"), [(3.0, 16), (5.0, 5)])
def test_a_trial_ends_after_five_readings_that_are_several_times_too_slow(scale, count) -> None:
    window = Window(0.0, 1.25, on_trial=True)
    for _ in range(count - 1):
        window.add(FIRST, log(scale), 0.1, DOUBT)
        assert window.judge(10.0) is None
    window.add(FIRST, log(scale), 0.1, DOUBT)
    assert window.judge(10.0).verdict is Verdict.TOO_SLOW


def test_a_little_too_slow_is_found_in_the_end() -> None:
    found, count = judged(1.35, scatter=0.3)
    assert found.verdict is Verdict.TOO_SLOW
    assert count > 32


def test_the_slowest_kind_counts() -> None:
    found, _ = judged(1.0, 3.0)
    assert (found.verdict, found.kind) == (Verdict.TOO_SLOW, OUTPUT)


def test_one_kind_that_is_fast_waits_for_the_other() -> None:
    found, count = judged(1.0, 1.24)
    assert found.verdict is not Verdict.FAST or count >= 128


def test_a_moment_is_too_short_however_many_readings_it_has() -> None:
    window = Window(0.0, 1.25)
    for _ in range(64):
        window.add(FIRST, 2.0, 0.1, DOUBT)
    assert window.judge(1.0) is None
    assert window.judge(3.0) is not None
    assert window.judge(3.1) is None  # nothing new


@pytest.mark.parametrize("seed", range(3))
def test_chance_alone_is_hardly_ever_too_slow(seed) -> None:
    slow = sum(
        judged(1.0, scatter=0.4, seed=1000 * seed + n)[0].verdict is Verdict.TOO_SLOW
        for n in range(100)
    )
    assert slow <= 2
