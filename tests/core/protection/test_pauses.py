"""Pauses in which chat is measured alone."""

from __future__ import annotations

import pytest

from forebay.core.protection.pauses import Pauses


def run(pauses: Pauses, seconds: float, reading_every_s: float) -> float:
    """Chat gives readings; returns the part of the time that pauses took."""
    now = paused_s = 0.0
    while now < seconds:
        now += reading_every_s
        if pauses.began_at is None:
            pauses.consider(now, doubtful=False)
        else:
            paused_s += reading_every_s
            pauses.measured(now)
            if now >= pauses.ends_at:
                pauses.end(now)
    return paused_s / seconds


def test_they_cost_a_twentieth_of_the_time_in_the_long_run() -> None:
    assert run(Pauses(allowed=True), 20_000, 0.5) < 0.06


def test_they_come_first_and_often_while_nothing_is_known() -> None:
    pauses = Pauses(allowed=True)
    assert run(pauses, 30, 0.5) > 0.2
    assert pauses.known


def test_rare_chat_ends_them_by_time() -> None:
    pauses = Pauses(allowed=True)
    pauses.consider(0.0, doubtful=True)
    assert pauses.ends_at == 30
    for n in range(16):
        pauses.measured(float(n))
    assert pauses.began_at is None
    pauses.consider(1000.0, doubtful=True)
    assert pauses.ends_at == 1010


def test_natural_gaps_spare_them() -> None:
    pauses = Pauses(allowed=True)
    for n in range(200):
        pauses.measured(float(n))
    pauses.consider(210.0, doubtful=False)
    assert pauses.began_at is None
    pauses.consider(210.0, doubtful=True)
    assert pauses.began_at == 210


def test_there_are_none_where_floors_are_strict() -> None:
    assert run(Pauses(allowed=False), 1000, 0.5) == 0


@pytest.mark.parametrize("now", [-5.0, 5.0])
def test_ending_what_has_not_begun_does_nothing(now) -> None:
    pauses = Pauses(allowed=True)
    pauses.end(now)
    assert pauses.began_at is None
