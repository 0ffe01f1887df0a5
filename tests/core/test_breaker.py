from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from forebay.core.breaker import Breaker, BreakerSettings, BreakerState, Change
from forebay.core.model import Outcome
from forebay.errors import ConfigError

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
STEADY = BreakerSettings(jitter=0.0)
NEUTRAL = [
    Outcome.CONGESTION,
    Outcome.CLIENT_ERROR,
    Outcome.CONFIGURATION,
    Outcome.LOADING,
    Outcome.CANCELLED,
]


def make(settings: BreakerSettings = STEADY) -> Breaker:
    return Breaker(settings, random.Random(7))


def call(breaker: Breaker, outcome: Outcome, now: float) -> Change | None:
    return breaker.end(breaker.begin(now), outcome, now)


def trip(breaker: Breaker, now: float) -> None:
    for _ in range(3):
        call(breaker, Outcome.FAILURE, now)
    assert breaker.state(now) is OPEN


def next_probe_at(breaker: Breaker, now: float) -> float:
    return now + breaker.retry_after_s(now)


@pytest.mark.parametrize("outcome", [Outcome.FAILURE, Outcome.TIMEOUT])
def test_opens_exactly_at_the_threshold(outcome: Outcome) -> None:
    breaker = make()
    assert call(breaker, outcome, 0.0) is None
    assert call(breaker, outcome, 0.0) is None
    assert breaker.admits(0.0)
    assert call(breaker, outcome, 0.0) == Change(CLOSED, OPEN, "failures in a row")
    assert not breaker.admits(0.0)


def test_an_answer_starts_the_count_anew() -> None:
    breaker = make()
    for outcome in [Outcome.FAILURE, Outcome.FAILURE, Outcome.OK] * 5:
        assert call(breaker, outcome, 0.0) is None
    assert breaker.state(0.0) is CLOSED


@pytest.mark.parametrize("outcome", NEUTRAL)
def test_what_says_nothing_about_health_neither_counts_nor_resets(outcome: Outcome) -> None:
    breaker = make()
    for _ in range(100):
        call(breaker, outcome, 0.0)
    assert breaker.state(0.0) is CLOSED
    call(breaker, Outcome.FAILURE, 0.0)
    call(breaker, Outcome.FAILURE, 0.0)
    call(breaker, outcome, 0.0)
    call(breaker, Outcome.FAILURE, 0.0)
    assert breaker.state(0.0) is OPEN


def test_one_burst_of_failures_is_one_trip() -> None:
    breaker = make()
    passes = [breaker.begin(0.0) for _ in range(7)]
    changes = [breaker.end(pass_, Outcome.FAILURE, 1.0) for pass_ in passes]
    assert [c for c in changes if c] == [Change(CLOSED, OPEN, "failures in a row")]
    snapshot = breaker.snapshot(1.0)
    assert (snapshot.trips, snapshot.cooldown_s) == (1, 5.0)


def test_a_success_that_began_before_the_trip_does_not_close_it() -> None:
    breaker = make()
    late = [breaker.begin(0.0) for _ in range(3)]
    trip(breaker, 1.0)
    assert breaker.end(late[0], Outcome.OK, 2.0) is None
    assert breaker.state(2.0) is OPEN
    assert breaker.end(late[1], Outcome.OK, 7.0) is None
    assert breaker.state(7.0) is HALF_OPEN
    call(breaker, Outcome.OK, 7.0)
    assert breaker.end(late[2], Outcome.FAILURE, 7.0) is None
    assert breaker.snapshot(7.0).failures == 0


def test_a_request_that_ran_although_it_was_open_counts_for_nothing() -> None:
    breaker = make()
    trip(breaker, 0.0)
    forced = [breaker.begin(1.0) for _ in range(2)]
    assert breaker.end(forced[0], Outcome.OK, 2.0) is None
    assert breaker.state(2.0) is OPEN
    call(breaker, Outcome.OK, 5.0)
    assert breaker.end(forced[1], Outcome.FAILURE, 5.0) is None
    assert breaker.snapshot(5.0).failures == 0


def test_the_cooldown_ends_by_itself_and_one_probe_may_run() -> None:
    breaker = make()
    trip(breaker, 0.0)
    assert breaker.retry_after_s(1.5) == 3.5
    assert not breaker.admits(4.9)
    assert breaker.state(5.0) is HALF_OPEN
    assert breaker.admits(5.0)
    probe = breaker.begin(5.0)
    assert probe.probe
    assert not breaker.admits(5.0)
    assert breaker.retry_after_s(6.0) == 14.0
    assert breaker.end(probe, Outcome.OK, 6.0) == Change(HALF_OPEN, CLOSED, "probe answered")
    assert breaker.admits(6.0)
    assert breaker.retry_after_s(6.0) == 0.0


def test_an_endpoint_that_healed_in_the_night_is_tried_in_the_morning_at_once() -> None:
    breaker = make()
    trip(breaker, 0.0)
    assert breaker.state(3600.0) is HALF_OPEN
    assert breaker.admits(3600.0)
    assert breaker.retry_after_s(3600.0) == 0.0


@pytest.mark.parametrize("outcome", NEUTRAL)
def test_a_probe_that_learned_nothing_gives_its_lease_back(outcome: Outcome) -> None:
    breaker = make()
    trip(breaker, 0.0)
    for _ in range(20):
        assert call(breaker, outcome, 5.0) is None
        assert breaker.admits(5.0)
    assert breaker.snapshot(5.0).cooldown_s == 5.0
    call(breaker, Outcome.OK, 5.0)
    assert breaker.state(5.0) is CLOSED


@pytest.mark.parametrize("outcome", [Outcome.FAILURE, Outcome.TIMEOUT])
def test_a_failed_probe_doubles_the_cooldown(outcome: Outcome) -> None:
    breaker = make()
    trip(breaker, 0.0)
    assert call(breaker, outcome, 5.0) == Change(HALF_OPEN, OPEN, "probe failed")
    assert breaker.retry_after_s(5.0) == 10.0
    assert breaker.snapshot(5.0).trips == 1


def test_a_probe_that_never_ends_counts_as_failed_from_when_its_time_was_up() -> None:
    breaker = make()
    trip(breaker, 0.0)
    breaker.begin(5.0)
    assert breaker.state(19.9) is HALF_OPEN
    assert breaker.state(20.0) is OPEN
    assert breaker.retry_after_s(22.0) == 8.0
    unwatched = make()
    trip(unwatched, 0.0)
    unwatched.begin(5.0)
    assert unwatched.retry_after_s(22.0) == 8.0
    assert unwatched.admits(30.0)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_probe_that_ends_too_late_only_tells_that_it_was_late(outcome: Outcome) -> None:
    breaker = make()
    trip(breaker, 0.0)
    late = breaker.begin(5.0)
    change = breaker.end(late, outcome, 21.0)
    assert change == Change(HALF_OPEN, OPEN, "probe got no answer in time")
    assert breaker.state(21.0) is OPEN
    assert breaker.retry_after_s(21.0) == 9.0


def test_a_late_probe_does_not_end_the_lease_of_the_next() -> None:
    breaker = make()
    trip(breaker, 0.0)
    late = breaker.begin(5.0)
    fresh = breaker.begin(40.0)
    assert fresh.probe
    assert breaker.end(late, Outcome.OK, 41.0) is None
    assert breaker.snapshot(41.0).probe_in_flight
    breaker.end(fresh, Outcome.OK, 42.0)
    assert breaker.state(42.0) is CLOSED


def test_the_first_token_of_a_probe_closes_it_however_long_the_answer_is() -> None:
    breaker = make()
    trip(breaker, 0.0)
    probe = breaker.begin(5.0)
    assert breaker.answered(probe, 19.9) == Change(HALF_OPEN, CLOSED, "probe answered")
    assert [breaker.cap(1, 64, 19.9 + t) for t in (0, 30)] == [1, 2]
    assert breaker.admits(100.0)
    assert breaker.end(probe, Outcome.OK, 100.0) is None
    snapshot = breaker.snapshot(100.0)
    assert (snapshot.state, snapshot.recoveries, snapshot.failures) == (CLOSED, 1, 0)


def test_an_answered_probe_that_breaks_later_is_one_failure_of_many() -> None:
    breaker = make()
    trip(breaker, 0.0)
    probe = breaker.begin(5.0)
    breaker.answered(probe, 6.0)
    assert breaker.end(probe, Outcome.FAILURE, 60.0) is None
    assert breaker.snapshot(60.0).failures == 1
    call(breaker, Outcome.FAILURE, 60.0)
    assert call(breaker, Outcome.FAILURE, 60.0) == Change(CLOSED, OPEN, "failures in a row")
    assert breaker.retry_after_s(60.0) == 10.0, "the escalation outlives a first token"


def test_an_answered_probe_that_ends_well_starts_the_count_anew() -> None:
    breaker = make()
    trip(breaker, 0.0)
    probe = breaker.begin(5.0)
    breaker.answered(probe, 6.0)
    call(breaker, Outcome.FAILURE, 7.0)
    breaker.end(probe, Outcome.OK, 8.0)
    assert breaker.snapshot(8.0).failures == 0


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_answered_probe_has_nothing_more_to_say_after_the_next_trip(outcome: Outcome) -> None:
    breaker = make()
    trip(breaker, 0.0)
    probe = breaker.begin(5.0)
    breaker.answered(probe, 6.0)
    trip(breaker, 7.0)
    assert breaker.end(probe, outcome, 8.0) is None
    assert breaker.answered(probe, 8.0) is None
    assert breaker.state(8.0) is OPEN


def test_a_first_token_that_is_too_late_or_not_the_probes_moves_nothing() -> None:
    breaker = make()
    old = breaker.begin(0.0)
    trip(breaker, 0.0)
    late = breaker.begin(5.0)
    assert breaker.answered(old, 6.0) is None
    assert breaker.answered(late, 20.0) is None
    assert breaker.state(20.0) is OPEN
    fresh = breaker.begin(40.0)
    assert breaker.answered(late, 41.0) is None
    assert breaker.state(41.0) is HALF_OPEN
    assert breaker.answered(fresh, 42.0) is not None


@pytest.mark.parametrize(("usual_s", "timeout_s"), [(0.0, 15.0), (4.0, 15.0), (30.0, 90.0)])
def test_a_probe_may_take_what_answers_usually_take_and_more(
    usual_s: float, timeout_s: float
) -> None:
    breaker = make()
    trip(breaker, 0.0)
    probe = breaker.begin(5.0, usual_s)
    assert probe.timeout_s == timeout_s
    assert breaker.retry_after_s(5.0) == timeout_s
    assert breaker.state(4.9 + timeout_s) is HALF_OPEN
    assert breaker.state(5.0 + timeout_s) is OPEN


def probe_times(breaker: Breaker, usual_s: float = 0.0, *, hang: bool) -> list[float]:
    """How long each of some probes may take that all run out of time."""
    times = []
    for n in range(1, 8):
        probe = breaker.begin(10_000.0 * n, usual_s)
        times.append(probe.timeout_s)
        breaker.end(probe, Outcome.TIMEOUT, 10_000.0 * n + (9_000.0 if hang else 1.0))
    return times


@pytest.mark.parametrize("hang", [True, False])
def test_before_the_first_answer_of_all_each_probe_gets_twice_the_time(*, hang: bool) -> None:
    breaker = make()
    trip(breaker, 0.0)
    assert probe_times(breaker, hang=hang) == [15, 30, 60, 120, 240, 300, 300]
    call(breaker, Outcome.OK, 100_000.0)
    trip(breaker, 100_000.0)
    assert breaker.begin(200_000.0).timeout_s == 15.0, "an answer ends that"


def test_where_the_usual_time_is_known_no_probe_that_hangs_gets_more() -> None:
    breaker = make()
    trip(breaker, 0.0)
    assert set(probe_times(breaker, usual_s=2.0, hang=True)) == {15.0}


def test_an_endpoint_that_fails_at_once_gets_no_more_time() -> None:
    breaker = make()
    trip(breaker, 0.0)
    call(breaker, Outcome.FAILURE, 5.0)
    assert breaker.begin(100.0).timeout_s == 15.0


def test_cooldowns_grow_to_the_cap_and_stay_there() -> None:
    breaker = make()
    trip(breaker, 0.0)
    now, cooldowns = 0.0, []
    for _ in range(9):
        cooldowns.append(breaker.retry_after_s(now))
        now = next_probe_at(breaker, now)
        call(breaker, Outcome.FAILURE, now)
    assert cooldowns == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_jitter_stays_between_the_first_cooldown_and_the_cap() -> None:
    breaker = make(BreakerSettings(jitter=0.5))
    trip(breaker, 0.0)
    now, cooldowns = 0.0, []
    for _ in range(60):
        cooldowns.append(breaker.snapshot(now).cooldown_s)
        now += 1000.0
        call(breaker, Outcome.FAILURE, now)
    assert all(5.0 <= cooldown <= 300.0 for cooldown in cooldowns)
    assert len({round(cooldown) for cooldown in cooldowns}) > 10


def test_cheap_answers_between_trips_do_not_reset_the_escalation() -> None:
    breaker = make()
    trip(breaker, 0.0)
    now, cooldowns = 0.0, []
    for _ in range(8):
        cooldowns.append(breaker.retry_after_s(now))
        now = next_probe_at(breaker, now)
        call(breaker, Outcome.OK, now)  # one small request is answered,
        trip(breaker, now + 1.0)  # the real batches are not
        now += 1.0
    assert cooldowns == [5, 10, 20, 40, 80, 160, 300, 300]
    assert breaker.snapshot(now).trips == 9


@pytest.mark.parametrize(
    ("answers", "closed_s", "cooldown_s"),
    [(10, 60.0, 5.0), (9, 3600.0, 10.0), (1000, 59.0, 10.0)],
)
def test_escalation_is_forgotten_after_enough_answers_and_enough_time(
    answers: int, closed_s: float, cooldown_s: float
) -> None:
    breaker = make()
    trip(breaker, 0.0)
    for _ in range(answers):  # the first of them is the probe
        call(breaker, Outcome.OK, 5.0)
    trip(breaker, 5.0 + closed_s)
    assert breaker.retry_after_s(5.0 + closed_s) == cooldown_s


def test_after_a_recovery_concurrency_starts_at_the_floor_and_doubles() -> None:
    breaker = make()
    assert breaker.cap(1, 64, 0.0) == 64
    trip(breaker, 0.0)
    call(breaker, Outcome.OK, 5.0)
    assert [breaker.cap(1, 64, 5.0 + t) for t in (0, 29, 30, 60, 90)] == [1, 1, 2, 4, 8]
    assert breaker.cap(4, 64, 5.0 + 90) == 32
    assert breaker.cap(1, 64, 5.0 + 180) == 64
    assert breaker.snapshot(5.0 + 180).ramping
    assert breaker.cap(1, 64, 1e9) == 64
    assert not breaker.snapshot(1e9).ramping


def test_a_ramp_tells_when_it_ends_and_ends_then() -> None:
    breaker = make()
    assert breaker.ramp(2, 64, 0.0) is None
    trip(breaker, 0.0)
    call(breaker, Outcome.OK, 5.0)
    assert breaker.ramp(2, 64, 5.0) == (2, 150)
    assert breaker.ramp(2, 64, 65.0) == (8, 90)
    assert breaker.ramp(3, 64, 65.0).left_s == pytest.approx(30 * math.log2(64 / 3) - 60)
    assert breaker.ramp(1, 4096, 65.0) == (4, 240), "it ends after ten doublings, wherever it is"
    assert breaker.ramp(64, 64, 65.0) == (64, 0)
    assert breaker.ramp(2, 64, 155.0) == (64, 0)
    assert breaker.ramp(2, 64, 1e9) is None


def test_one_primary_and_one_fallback_cost_one_attempt_per_cooldown() -> None:
    breaker = make(replace(STEADY, fail_threshold=1))
    attempts = 0
    for request in range(15):
        now = 4.0 * request
        if breaker.admits(now):
            attempts += 1
            call(breaker, Outcome.FAILURE, now)
    assert attempts <= 5
    healed_at = next_probe_at(breaker, 60.0)
    call(breaker, Outcome.OK, healed_at)
    assert breaker.state(healed_at) is CLOSED


def test_while_a_probe_hangs_everything_else_is_told_to_go_elsewhere() -> None:
    breaker = make()
    trip(breaker, 0.0)
    breaker.begin(5.0)
    assert not any(breaker.admits(5.0 + s) for s in range(15))


def test_a_disabled_breaker_stays_closed() -> None:
    breaker = make(replace(STEADY, enabled=False))
    for _ in range(50):
        assert call(breaker, Outcome.FAILURE, 0.0) is None
    assert breaker.admits(0.0)
    assert breaker.cap(1, 64, 0.0) == 64


def test_a_snapshot_tells_the_whole_story() -> None:
    breaker = make()
    trip(breaker, 0.0)
    open_ = breaker.snapshot(1.0)
    assert (open_.state, open_.failures, open_.remaining_s) == (OPEN, 3, 4.0)
    call(breaker, Outcome.OK, 5.0)
    for _ in range(9):
        call(breaker, Outcome.OK, 6.0)
    closed = breaker.snapshot(7.0)
    assert (closed.trips, closed.recoveries, closed.cooldown_s) == (1, 1, 5.0)
    assert breaker.snapshot(65.0).cooldown_s == 0.0
    assert "closed" in repr(breaker)


@pytest.mark.parametrize(
    "values",
    [
        {"fail_threshold": 0},
        {"base_cooldown_s": 0.0},
        {"base_cooldown_s": 10.0, "max_cooldown_s": 5.0},
        {"backoff_factor": 0.5},
        {"probe_timeout_s": 0.0},
        {"ramp_double_s": -1.0},
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        BreakerSettings(**values)
