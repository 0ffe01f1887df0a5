"""What levels say about each other."""

from __future__ import annotations

from core.limits.test_pace import level
from forebay.core.limits.judge import Change, Judge
from forebay.core.limits.pace import Reading


def judge() -> Judge:
    """One who has seen usual requests."""
    made = Judge()
    for reading in level(4).readings:
        made.see(reading)
    return made


FEW = level(4)
TWICE = level(8, count=250, seed=2)
FULL = level(16, fixed_s=0.4, per_work_s=0.02, count=250, seed=3)  # twice as many as are served


def test_it_knows_what_is_usual_lately() -> None:
    made = Judge()
    assert made.usual_s == 0
    for _ in range(1000):
        made.see(Reading(10.0, 0.5, 4))
    for _ in range(200):
        made.see(Reading(10.0, 1.0, 4))
    assert 0.99 < made.usual_s <= 1.0


def test_more_in_flight_is_worth_it_until_the_endpoint_is_full() -> None:
    assert judge().worth(FEW, TWICE, decide=False) is True
    assert judge().worth(TWICE, FULL, decide=False) is False


def test_what_is_not_certain_is_left_open_unless_it_has_to_be_decided() -> None:
    little, noisy = level(4, count=8, cv=0.5), level(5, count=8, cv=0.5, seed=2)
    assert judge().worth(little, noisy, decide=False) is None
    assert judge().worth(little, noisy, decide=True) is not None


def test_a_ramp_goes_on_in_doubt_and_ends_when_it_has_to_be_decided() -> None:
    assert judge().worth_trying(FEW, TWICE, decide=False) is True
    assert judge().worth_trying(TWICE, FULL, decide=False) is False
    lower, upper = level(8, count=9), level(9, count=9, fixed_s=0.22, per_work_s=0.011)
    assert judge().worth_trying(lower, upper, decide=False) is None
    assert judge().worth_trying(lower, upper, decide=True) is False


def test_where_nothing_waits_yet_more_must_pay_well() -> None:
    little = level(8, fixed_s=0.2 * 1.7, per_work_s=0.01 * 1.7, seed=4)  # 18 % for twice as many
    made = judge()
    assert made.worth_a_probe(FEW, little, decide=True) is True
    made.begin_base(None, level(1))
    assert made.worth_a_probe(FEW, little, decide=True) is False
    assert made.worth(FEW, little, decide=True) is True


def test_a_change_is_told_from_noise() -> None:
    made = judge()
    assert made.change(TWICE, level(8, cv=0.3, seed=5)) is None
    assert made.change(TWICE, level(8, fixed_s=0.4, per_work_s=0.02)) is Change.SLOWER
    assert made.change(TWICE, level(8, fixed_s=0.1, per_work_s=0.005)) is Change.FASTER


def test_a_queue_is_suspected_while_nothing_is_known_of_few_in_flight() -> None:
    made = judge()
    assert made.queues(TWICE)
    assert made.served(TWICE) == 4
    made.begin_base(None, TWICE)
    assert made.queues(FEW)


def test_beside_few_in_flight_a_queue_shows_and_how_many_are_served() -> None:
    made = judge()
    made.begin_base(None, FEW)
    assert not made.queues(TWICE)
    assert made.queues(FULL)
    assert 7.5 < made.served(FULL) < 8.5
    assert 7.5 < made.served(TWICE) <= 8


def test_the_base_is_the_lowest_level_or_one_from_which_more_pays_in_full() -> None:
    made = judge()
    made.learn_base(TWICE, FULL)
    assert not made.queues(level(9, seed=5))
    made.learn_base(FEW, TWICE)
    assert not made.queues(level(5, seed=5))
    made.learn_base(FULL, level(32, fixed_s=0.8, per_work_s=0.04))
    assert made.queues(FULL)
    made.learn_base(TWICE, level(16, seed=5))
    assert made.queues(level(8, seed=5))


def test_a_base_of_slower_times_is_forgotten() -> None:
    made = judge()
    made.forget_base_if_faster(TWICE)
    made.begin_base(None, FEW)
    made.forget_base_if_faster(TWICE)
    assert not made.queues(TWICE)
    made.forget_base_if_faster(level(8, fixed_s=0.1, per_work_s=0.005))
    assert made.queues(TWICE)


def test_small_levels_are_the_base_until_requests_wait() -> None:
    made = judge()
    made.begin_base(None, level(1, count=3))
    made.begin_base(level(1), level(2, count=3))
    made.begin_base(level(2), level(4, fixed_s=0.4, per_work_s=0.02))
    assert not made.knows_base
    made.begin_base(level(4), level(6, fixed_s=0.6, per_work_s=0.03))
    assert not made.knows_base
