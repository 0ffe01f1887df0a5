"""The two laws."""

from __future__ import annotations

from itertools import pairwise

import pytest

from forebay.core.protection.share import IdleShare, Move, Share
from forebay.core.protection.window import Verdict

SLOW, RIGHT, FAST = Verdict.TOO_SLOW, Verdict.RIGHT, Verdict.FAST


def share(value: float = 4.0, least: float = 0.2) -> Share:
    return Share(1.25, least, value)


def test_it_goes_back_to_the_last_level_that_was_fine() -> None:
    law = share()
    assert law.judge(FAST, 1.2, 0.0, used=True) is Move.GREW
    assert law.value == 5
    assert law.judge(SLOW, 1.6, 10.0, used=True) is Move.CUT
    assert law.value == 4


def test_chat_that_is_several_times_too_slow_is_relieved_at_once() -> None:
    law = share()
    law.judge(SLOW, 3.0, 10.0, used=True)
    assert law.value == pytest.approx(0.5)
    law = share()
    law.judge(SLOW, 30.0, 0.0, used=True)
    assert law.value == pytest.approx(0.4)


def test_a_step_too_far_costs_no_more_than_the_step() -> None:
    law = share()
    law.judge(FAST, 1.0, 0.0, used=True)
    assert law.on_trial
    law.judge(SLOW, 50.0, 10.0, used=True)
    assert (law.value, law.on_trial) == (4.0, False)


def test_a_little_above_the_best_level_is_a_step_too() -> None:
    law = share(7.0)
    law.judge(FAST, 1.0, 0.0, used=True)
    law.judge(SLOW, 50.0, 1.0, used=True)
    while law.value < 8:
        best = law.value
        law.judge(FAST, 1.2, 2.0, used=True)
    law.judge(SLOW, 9.0, 3.0, used=True)
    assert law.value == best


def test_the_first_level_is_on_trial_until_chat_has_been_judged_beside_it() -> None:
    law = share()
    assert law.on_trial
    law.judge(RIGHT, 1.25, 0.0, used=True)
    assert not law.on_trial
    law.forget(2.0)  # another machine: nothing is known of it
    assert law.on_trial


def test_a_level_that_was_good_before_is_no_trial() -> None:
    law = share(4.0)
    for value in (4.0, 8.0):
        law.value = value
        law.judge(RIGHT, 1.25, 0.0, used=True)
    law.value = 4.0
    law.judge(FAST, 1.2, 1.0, used=True)
    assert law.value == 5
    assert not law.on_trial


def test_a_level_that_chat_stood_and_stands_no_more_is_no_step_too_far() -> None:
    law = share()
    law.judge(FAST, 1.0, 0.0, used=True)
    law.judge(RIGHT, 1.25, 10.0, used=True)
    level = law.value
    assert not law.on_trial
    while law.judge(SLOW, 50.0, 20.0, used=True) is Move.HELD:
        pass
    assert law.value < level / 5


def test_between_a_good_level_and_one_that_is_too_much_it_tries_half_way() -> None:
    law, tried = share(6.25), []
    law.judge(FAST, 1.0, 0.0, used=True)
    for _ in range(6):
        if law.value > 8:
            law.judge(SLOW, 50.0, 1.0, used=True)
        else:
            law.judge(FAST, 1.0, 1.0, used=True)
        tried.append(law.value)
    assert 7 < tried[-1] < 8
    assert sum(value > 8 for value in tried) <= 2


def test_steps_are_largest_where_no_level_was_too_much_yet() -> None:
    fresh, burnt = share(), share()
    burnt.judge(SLOW, 1.6, 0.0, used=True)
    before = burnt.value
    fresh.judge(FAST, 1.0, 50.0, used=True)
    burnt.judge(FAST, 1.0, 50.0, used=True)
    assert fresh.value / 4 > burnt.value / before


def test_far_below_the_target_it_grows_faster() -> None:
    near, far = share(), share()
    near.judge(FAST, 1.2, 0.0, used=True)
    far.judge(FAST, 1.0, 0.0, used=True)
    assert far.value > near.value > 4


def test_where_nothing_was_fine_it_goes_down_in_proportion_but_not_by_more_than_half() -> None:
    little, much = share(), share()
    little.judge(SLOW, 1.4, 0.0, used=True)
    much.judge(SLOW, 1.9, 0.0, used=True)
    assert (little.value, much.value) == (pytest.approx(2.5), 2.0)


def test_it_never_goes_below_the_least() -> None:
    law = share(1.0, least=1.0)
    assert law.judge(SLOW, 9.0, 0.0, used=True) is Move.HELD
    assert law.value == 1
    assert law.cuts == 1


def test_a_level_that_was_too_much_is_left_alone_longer_each_time() -> None:
    law, now, tries = share(), 0.0, []
    for _ in range(2000):
        now += 5.0
        if law.value > 4.5:
            tries.append(now)
            law.judge(SLOW, 3.0, now, used=True)
        else:
            law.judge(FAST, 1.1, now, used=True)
    waits = [b - a for a, b in pairwise(tries)]
    assert waits[0] < 100
    assert max(waits) > 400
    assert len(tries) < 40


def tries_above(law: Share, value: float, *, since: float, seconds: float) -> list[float]:
    """When it goes above `value`, where chat is wrecked, and fast up to there."""
    tries = []
    for step in range(int(seconds)):
        now = since + step
        if law.value > value:
            tries.append(now)
            law.judge(SLOW, 20.0, now, used=True)
        else:
            law.judge(FAST, 1.1, now, used=True)
    return tries


def test_every_trial_that_failed_puts_the_next_one_off_however_far_it_went() -> None:
    law = share(7.0)
    tries = tries_above(law, 7.0, since=0.0, seconds=2000.0)
    waits = [b - a for a, b in pairwise(tries) if b - a > 10]
    assert waits == sorted(waits)
    assert waits[0] >= 120, "the halves between were tried, and failed too"
    assert len(tries) < 12


def test_after_a_level_turned_out_good_the_next_try_is_as_soon_as_the_first() -> None:
    law = share(7.0)
    tries_above(law, 7.0, since=0.0, seconds=2000.0)
    law.value = 20.0
    law.judge(RIGHT, 1.2, 2000.0, used=True)
    tries = tries_above(law, 20.0, since=2001.0, seconds=200.0)
    assert len(tries) > 2, "one, its halves, and one more"


def test_once_its_time_is_over_that_level_comes_first_and_then_what_is_beyond() -> None:
    law, values = share(), []
    law.judge(SLOW, 1.3, 0.0, used=True)
    for now in range(100, 106):
        law.judge(FAST, 1.0, float(now), used=True)
        values.append(law.value)
    assert 4.0 in values
    assert values[-1] > 4


def test_what_was_not_used_does_not_grow() -> None:
    law = share()
    assert law.judge(FAST, 1.0, 0.0, used=False) is Move.HELD
    assert law.value == 4


def test_at_the_target_it_stays() -> None:
    law = share()
    assert law.judge(RIGHT, 1.25, 0.0, used=True) is Move.HELD
    assert law.value == 4


def test_one_bad_judgement_on_a_level_that_was_fine_again_and_again_is_chance() -> None:
    law = share()
    for n in range(6):
        law.judge(RIGHT, 1.05, float(n), used=True)
    assert law.judge(SLOW, 1.5, 10.0, used=True) is Move.HELD
    assert law.judge(SLOW, 1.5, 20.0, used=True) is Move.CUT


def test_cuts_that_were_not_the_cure_are_taken_back() -> None:
    law = share()
    law.judge(SLOW, 2.0, 0.0, used=True)
    law.judge(SLOW, 2.0, 10.0, used=True)
    assert law.cuts == 2
    assert law.value < 3
    assert law.forget(2.0)
    assert (law.value, law.cuts) == (4, 0)


def test_cuts_stay_where_chats_own_speed_explains_only_a_part() -> None:
    law = share()
    law.judge(SLOW, 6.0, 0.0, used=True)
    assert not law.forget(2.0)
    assert law.value < 1


@pytest.mark.parametrize(
    ("moved", "forgets"), [(0.9, False), (1.2, False), (0.5, True), (2.0, True)]
)
def test_on_another_machine_it_forgets_what_was_too_much(*, moved: float, forgets: bool) -> None:
    law = share(6.4)
    law.judge(FAST, 1.0, 0.0, used=True)
    law.judge(SLOW, 3.0, 1.0, used=True)
    law.judge(FAST, 1.0, 2.0, used=True)
    law.forget(moved)
    law.value = 6.4
    law.judge(FAST, 1.0, 3.0, used=True)
    assert (law.value > 12) is forgets


def test_a_faster_machine_takes_no_cut_back() -> None:
    law = share()
    law.judge(SLOW, 2.0, 0.0, used=True)
    assert not law.forget(0.5)
    assert law.value < 4


def test_idle_time_is_unbounded_until_chat_was_slow_because_of_it() -> None:
    idle = IdleShare()
    idle.read(32, 0.5)
    idle.read(0, 9.0)  # slow, but it met nothing
    assert idle.value > 1000
    idle.read(32, 1.5)
    assert 16 <= idle.value < 32


def test_several_slow_ones_of_one_return_count_once() -> None:
    idle = IdleShare()
    for _ in range(5):
        idle.read(32, 9.0)
    assert idle.value == 16


def test_it_settles_where_few_returns_are_slow() -> None:
    idle, slow = IdleShare(), 0
    for _ in range(3000):
        met = int(min(idle.value, 32))
        excess = met / 6  # six are just what chat bears
        slow += excess > 1
        idle.read(met, excess)
    assert slow / 3000 < 0.05
    assert 4 <= idle.value <= 16
