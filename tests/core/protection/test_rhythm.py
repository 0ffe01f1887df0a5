"""How chat comes and goes."""

from __future__ import annotations

import pytest

from forebay.core.protection.rhythm import Rhythm


def rhythm(gap_s: float, count: int = 100) -> tuple[Rhythm, float]:
    made, now = Rhythm(), 0.0
    for _ in range(count):
        made.came(now)
        made.asked(now)
        made.left(now + 0.1)
        now += 0.1 + gap_s
    return made, now - gap_s


def test_who_asks_again_at_once_is_waited_for_a_moment() -> None:
    made, left_at = rhythm(0.01)
    assert made.idle_at == pytest.approx(left_at + 0.05)


def test_who_thinks_for_a_while_is_waited_for_longer() -> None:
    made, left_at = rhythm(0.3)
    assert made.idle_at == pytest.approx(left_at + 0.6, rel=0.01)


def test_who_comes_seldom_is_not_waited_for() -> None:
    made, left_at = rhythm(20.0)
    assert made.idle_at == pytest.approx(left_at + 0.05)
    assert made.gone_at == pytest.approx(made.idle_at + 40, rel=0.01)


def test_one_long_gap_hardly_changes_what_is_usual() -> None:
    made, left_at = rhythm(0.1)
    made.came(left_at + 30)
    made.left(left_at + 31)
    assert made.idle_at < left_at + 31 + 0.5


def test_more_may_run_after_a_silence_that_is_long_for_this_chat() -> None:
    made, _ = rhythm(10.0)
    assert made.growth(made.idle_at + 100, known=True) == 1
    assert made.growth(made.idle_at + 300, known=True) > 2**10
    assert made.growth(made.idle_at + 10, known=False) == pytest.approx(4)
    assert made.growth(made.idle_at + 1e9, known=True) == 2**30


def test_before_chat_ever_came_everything_may_run() -> None:
    assert Rhythm().growth(0.0, known=False) == 2**30
    assert Rhythm().grows_at(5.0) == 6


def test_the_rate_is_that_of_lately() -> None:
    made, now = rhythm(0.4, count=200)
    assert made.rate(now) == pytest.approx(2, rel=0.1)
    assert made.rate(now + 60) < 0.01
    assert made.rate(now - 60) < 3  # the clock went back
