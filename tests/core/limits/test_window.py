from __future__ import annotations

import random

import pytest

from forebay.core.limits.window import Latency, Verdict, Window
from forebay.core.model import TimingKind

FIRST_TOKEN, OUTPUT_TOKEN, WORK = TimingKind
TOLERANCE = 0.152
TIMES = "\N{MULTIPLICATION SIGN}"


def fill(window: Window, excesses: list[float], kind: TimingKind = WORK) -> Verdict | None:
    """Add readings two a second; return the first verdict."""
    now = window.began_at
    for excess in excesses:
        now += 0.5
        window.see(kind)
        if window.add(kind, excess, now):
            verdict = window.judge(kind, TOLERANCE)
            if verdict is not None:
                return verdict
    return None


def test_readings_as_expected_are_good() -> None:
    assert fill(Window(16, 4, 0.0), [0.0] * 15) is None
    assert fill(Window(16, 4, 0.0), [0.0] * 16) == Verdict(Latency.GOOD)


def test_good_takes_as_many_readings_as_there_are_slots() -> None:
    assert fill(Window(16, 100, 0.0), [0.0] * 99) is None
    assert fill(Window(16, 100, 0.0), [0.0] * 100) == Verdict(Latency.GOOD)
    assert fill(Window(16, 512, 0.0), [0.0] * 256) == Verdict(Latency.GOOD)


def test_high_is_told_from_the_least_number_of_readings() -> None:
    verdict = fill(Window(16, 100, 0.0), [1.0] * 16)
    assert verdict == Verdict(Latency.HIGH, f"work 2.0 {TIMES} baseline")


def test_a_window_lasts_a_quarter_of_a_second_at_least() -> None:
    window = Window(16, 4, 10.0)
    assert not any(window.add(WORK, 0.0, 10.0 + 0.001 * n) for n in range(100))
    assert window.add(WORK, 0.0, 10.25)


def test_what_may_be_chance_goes_on_until_it_is_told_apart() -> None:
    rng = random.Random(1)
    scattered = [0.3 + rng.gauss(0, 0.4) for _ in range(256)]
    assert fill(Window(16, 4, 0.0), scattered[:32]) is None
    verdict = fill(Window(16, 4, 0.0), scattered)
    assert verdict is not None
    assert verdict.latency is Latency.HIGH


def test_what_is_uncertain_after_very_many_readings_stays_so() -> None:
    verdict = fill(Window(16, 4, 0.0), [0.9, -0.5] * 128)  # 0.2, give or take 0.05
    assert verdict is not None
    assert verdict.latency is Latency.UNCERTAIN
    assert verdict.why.startswith("work ")


def test_a_few_very_slow_requests_are_not_high_latency() -> None:
    assert fill(Window(16, 4, 0.0), [8.0, *[0.0] * 15]) == Verdict(Latency.GOOD)


def test_batches_of_which_half_wait_are_high_latency() -> None:
    verdict = fill(Window(16, 24, 0.0), [0.0, 1.0] * 128)
    assert verdict is not None
    assert verdict.latency is Latency.HIGH


@pytest.mark.parametrize("heard", [0, 7])
def test_a_kind_with_few_readings_has_no_say(heard: int) -> None:
    window = Window(16, 4, 0.0)
    fill(window, [3.0] * heard, FIRST_TOKEN)
    assert fill(window, [0.0] * 16) == Verdict(Latency.GOOD)


def test_a_kind_that_is_seen_must_be_heard_before_anything_is_good() -> None:
    window = Window(16, 4, 0.0)
    for _ in range(8):
        window.see(OUTPUT_TOKEN)
    assert fill(window, [0.0] * 100, FIRST_TOKEN) is None
    fill(window, [0.0] * 8, OUTPUT_TOKEN)
    assert fill(window, [0.0] * 100, FIRST_TOKEN) == Verdict(Latency.GOOD)


def test_a_kind_that_is_never_heard_does_not_stop_the_others_for_ever() -> None:
    window = Window(16, 4, 0.0)
    for _ in range(8):
        window.see(OUTPUT_TOKEN)
    verdict = fill(window, [0.0] * 256, FIRST_TOKEN)
    assert verdict == Verdict(Latency.UNCERTAIN, "readings are missing")


def test_the_worst_kind_decides() -> None:
    window = Window(16, 4, 0.0)
    fill(window, [2.0] * 15, FIRST_TOKEN)
    assert fill(window, [0.0] * 16) is None
    verdict = fill(window, [2.0], FIRST_TOKEN)
    assert verdict == Verdict(Latency.HIGH, f"first token 4.0 {TIMES} baseline")


def test_the_smallest_windows_work_too() -> None:
    assert fill(Window(2, 1, 0.0), [0.0, 0.0]) == Verdict(Latency.GOOD)
