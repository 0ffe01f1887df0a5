"""Endpoints that break, come back, sleep, or ask to be left alone."""

from __future__ import annotations

import pytest

from forebay.core.admission import Observer
from forebay.core.breaker import BreakerSettings, BreakerState
from forebay.core.limits.fixed import Fixed
from forebay.core.model import Ending, EngineState, Outcome, Reason, Signal, Timing, TimingKind
from forebay.core.queue import QueueBounds
from support.deployments import BEST_EFFORT, OK, Desk, admission, endpoint

FAILED = Ending(Outcome.FAILURE)
STEADY = BreakerSettings(jitter=0.0)


def one_model(ceiling: int = 32, floor: int = 1, **more) -> Desk:
    more.setdefault("breaker", STEADY)
    return Desk(admission(endpoint("chat", floor=floor, ceiling=ceiling), **more))


def trip(desk: Desk) -> None:
    for grant in desk.running[:3]:
        desk.finish(grant, FAILED)


def reasons(desk: Desk) -> list[Reason]:
    return [refusal.reason for refusal in desk.refused]


def engine(desk: Desk, state: EngineState, host: str = "a") -> None:
    signal = Signal("vllm", at=desk.now, state=state)
    desk.see(desk.core.signal(f"chat@{host}", signal, desk.now))


# -- broken endpoints ----------------------------------------------------------------------------


def test_whoever_waits_for_an_endpoint_that_breaks_is_refused_with_a_time_to_come_back() -> None:
    desk = one_model(4)
    desk.ask_many("chat", 9)
    desk.ask("chat", BEST_EFFORT)
    trip(desk)
    assert reasons(desk) == [Reason.UNAVAILABLE] * 4, "three started as the failed ones ended"
    assert {r.retry_after_s for r in desk.refused} == {5.0}
    desk.now = 2.0
    desk.ask("chat")
    assert desk.refused[-1].retry_after_s == 3.0
    desk.now = 4.9
    desk.ask("chat")
    assert desk.refused[-1].retry_after_s == 1.0, "never less than a second"


def test_after_the_cooldown_one_request_tries_alone_while_others_are_refused() -> None:
    desk = one_model(4)
    desk.ask_many("chat", 3)
    trip(desk)
    desk.now = 3600.0
    desk.ask("chat")
    assert [g.pass_.probe for g in desk.running] == [True]
    desk.ask("chat")
    assert reasons(desk) == [Reason.UNAVAILABLE]
    assert desk.refused[0].retry_after_s == 15.0


def test_whoever_waited_for_a_pause_to_end_does_not_wait_for_the_probe_after_it() -> None:
    desk = one_model(4)
    desk.ask_many("chat", 3)
    trip(desk)
    desk.now = 5.0
    desk.ask("chat")
    desk.finish(desk.running[0], Ending(Outcome.CONGESTION, retry_after_s=7.0))
    desk.ask_many("chat", 3)
    assert len(desk.waiting) == 3
    desk.now = 12.0
    desk.see(desk.core.tick(desk.now))
    assert [g.pass_.probe for g in desk.running] == [True]
    assert reasons(desk) == [Reason.UNAVAILABLE] * 2


def test_a_probe_that_says_nothing_lets_the_next_request_try() -> None:
    desk = one_model(4)
    desk.ask_many("chat", 3)
    trip(desk)
    desk.now = 5.0
    desk.ask("chat")
    desk.finish(desk.running[0], Ending(Outcome.CANCELLED))
    desk.ask("chat")
    assert [g.pass_.probe for g in desk.running] == [True]


def test_a_probe_that_fails_keeps_everybody_away_for_longer() -> None:
    desk = one_model(4)
    desk.ask_many("chat", 3)
    trip(desk)
    desk.now = 5.0
    desk.ask("chat")
    desk.finish(desk.running[0], FAILED)
    desk.ask("chat")
    assert desk.refused[-1].retry_after_s == 10.0


def test_an_endpoint_that_comes_back_starts_at_its_floor_and_doubles() -> None:
    desk = one_model(16, floor=2)
    desk.ask_many("chat", 3)
    trip(desk)
    desk.now = 5.0
    desk.ask("chat")
    desk.finish(desk.running[0])
    desk.ask_many("chat", 20)
    seen = [len(desk.running)]
    for now in (34.9, 35.0, 65.0, 95.0, 200.0):
        desk.now = now
        desk.see(desk.core.tick(now))
        seen.append(len(desk.running))
    assert seen == [2, 3, 4, 8, 16, 16]


def test_a_law_that_grows_faster_than_the_ramp_is_held_to_it() -> None:
    class Eager(Fixed):
        """Begins again at the floor, and jumps to the ceiling with the first answer after."""

        def restart(self, **_):
            return self.resize(floor=1, ceiling=1)

        def on_end(self, _outcome, *, started_at, **_):
            return self.resize(floor=1, ceiling=16) if started_at > 5.0 else None

    desk = one_model(16, law=lambda e: Eager(e.floor, e.ceiling))
    desk.ask_many("chat", 3)
    trip(desk)
    desk.now = 5.0
    desk.ask("chat")
    desk.finish(desk.running[0])
    assert desk.core.states["chat@a"].law.decision.limit == 1
    desk.now = 6.0
    desk.ask_many("chat", 20)
    desk.finish(desk.running[0])
    assert desk.core.states["chat@a"].law.decision.limit == 16
    assert len(desk.running) == 1
    desk.now = 65.0
    desk.see(desk.core.tick(desk.now))
    assert len(desk.running) == 4


def test_a_ramp_goes_on_by_itself_while_requests_wait() -> None:
    """Nothing ends, nothing comes: the driver is told when to look."""
    desk = one_model(4)
    desk.ask_many("chat", 3)
    trip(desk)
    desk.now = 5.0
    desk.ask("chat")
    desk.finish(desk.running[0])
    assert desk.core.wake_at(desk.now) is None, "nobody waits"
    desk.ask_many("chat", 8)
    for _ in range(100):
        at = desk.core.wake_at(desk.now)
        if at is None:
            break
        desk.now = at
        desk.see(desk.core.tick(at))
    assert len(desk.running) == 4
    assert desk.now == pytest.approx(65.0, abs=1.0)


def test_a_ramp_follows_the_floor_and_the_ceiling_that_hold_now() -> None:
    desk = one_model(4)
    desk.ask_many("chat", 3)
    trip(desk)
    desk.see(desk.core.set_bounds("chat@a", 3, 12, desk.now))
    desk.now = 5.0
    desk.ask("chat")
    desk.finish(desk.running[0])
    desk.ask_many("chat", 20)
    assert len(desk.running) == 3
    desk.now = 35.0
    desk.see(desk.core.tick(desk.now))
    assert len(desk.running) == 6


FIRST_TOKEN = Timing(TimingKind.FIRST_TOKEN, 1.0, 10)


def broken_once(probe_at: float = 5.0, **more) -> Desk:
    """A model whose endpoint broke, and is being probed."""
    desk = one_model(4, **more)
    desk.ask_many("chat", 3)
    trip(desk)
    desk.now = probe_at
    desk.ask("chat")
    assert desk.running[0].pass_.probe
    return desk


def test_a_stream_brings_its_endpoint_back_with_the_first_token() -> None:
    heard = []

    class Heard(Observer):
        def breaker_changed(self, _endpoint, change, now) -> None:
            heard.append((change.after, now))

    desk = broken_once(breaker=BreakerSettings(jitter=0.0, probe_timeout_s=2.0), observer=Heard())
    desk.now = 6.0
    probe = desk.running[0]
    desk.see(desk.core.timing(probe, FIRST_TOKEN, desk.now))
    desk.ask_many("chat", 2)
    assert len(desk.waiting) == 2, "at the floor, behind the stream, and not refused"
    desk.now = 60.0
    desk.see(desk.core.timing(probe, FIRST_TOKEN, desk.now))
    desk.finish(probe)
    assert heard == [(BreakerState.OPEN, 0.0), (BreakerState.CLOSED, 6.0)]
    assert not reasons(desk)


def test_after_a_probes_first_token_the_limit_begins_again_at_once() -> None:
    restarted = []

    class Law(Fixed):
        def restart(self, *, now) -> None:
            restarted.append(now)

    desk = broken_once(law=lambda e: Law(e.floor, e.ceiling))
    desk.see(desk.core.timing(desk.running[0], FIRST_TOKEN, 6.0))
    desk.now = 9.0
    desk.finish(desk.running[0])
    assert restarted == [6.0]


def test_an_endpoint_whose_whole_answers_take_long_comes_back() -> None:
    desk = one_model(4)
    desk.ask("chat")
    desk.now = 30.0
    desk.finish(desk.running[0])
    desk.ask_many("chat", 3)
    trip(desk)
    desk.now = 40.0
    desk.ask("chat")
    assert desk.running[0].pass_.timeout_s == 90.0
    desk.now = 70.0
    desk.finish(desk.running[0])
    desk.ask("chat")
    assert len(desk.running) == 1


def test_long_streams_do_not_give_a_probe_that_hangs_more_time() -> None:
    desk = one_model(4)
    desk.ask("chat")
    desk.see(desk.core.timing(desk.running[0], FIRST_TOKEN, 1.0))
    desk.now = 600.0
    desk.finish(desk.running[0])
    desk.ask_many("chat", 3)
    trip(desk)
    desk.now = 700.0
    desk.ask("chat")
    assert desk.running[0].pass_.timeout_s == 15.0


def test_a_breaker_that_moves_is_told_of() -> None:
    class Heard(Observer):
        changes: list[tuple[str, BreakerState, float]] = []  # noqa: RUF012 - of this test only

        def breaker_changed(self, endpoint, change, now) -> None:
            self.changes.append((endpoint.id, change.after, now))

    desk = one_model(4, observer=Heard())
    desk.ask_many("chat", 3)
    trip(desk)
    desk.now = 7.0
    desk.ask("chat")
    desk.finish(desk.running[0])
    assert Heard.changes == [
        ("chat@a", BreakerState.OPEN, 0.0),
        ("chat@a", BreakerState.CLOSED, 7.0),
    ]


# -- engines that do not serve -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "reason"),
    [(EngineState.ASLEEP, Reason.ASLEEP), (EngineState.LOADING, Reason.LOADING)],
)
def test_whoever_waits_for_an_engine_that_does_not_serve_is_refused(state, reason) -> None:
    desk = one_model(1)
    desk.ask_many("chat", 3)
    engine(desk, state)
    desk.ask("chat")
    assert reasons(desk) == [reason] * 3
    assert desk.refused[0].retry_after_s == 5.0
    assert desk.core.wake_at(desk.now) is None, "only the engine can tell"


def test_an_engine_that_wakes_up_serves_again() -> None:
    desk = one_model(1)
    engine(desk, EngineState.ASLEEP)
    engine(desk, EngineState.AWAKE)
    desk.ask("chat")
    assert len(desk.running) == 1


def test_an_engine_that_cannot_be_read_any_more_is_tried_again() -> None:
    desk = one_model(1)
    engine(desk, EngineState.ASLEEP)
    desk.now = 14.9
    desk.see(desk.core.signal("chat@a", None, desk.now))
    desk.ask("chat")
    assert reasons(desk) == [Reason.ASLEEP]
    desk.now = 15.0
    desk.see(desk.core.signal("chat@a", None, desk.now))
    desk.ask("chat")
    assert len(desk.running) == 1


def test_a_model_that_sleeps_on_one_host_and_starts_on_another_is_loading() -> None:
    desk = Desk(admission(endpoint("chat", host="a"), endpoint("chat", host="b")))
    engine(desk, EngineState.ASLEEP, "a")
    engine(desk, EngineState.LOADING, "b")
    desk.ask("chat")
    assert reasons(desk) == [Reason.LOADING]


# -- endpoints that ask to be left alone ---------------------------------------------------------


def test_an_endpoint_that_asks_to_be_left_alone_is_and_whoever_waits_goes_on_waiting() -> None:
    desk = one_model(2)
    desk.ask_many("chat", 4)
    desk.now = 1.0
    desk.finish(desk.running[0], Ending(Outcome.CONGESTION, retry_after_s=7.0))
    assert len(desk.running) == 1
    assert not desk.refused
    assert desk.core.wake_at(desk.now) == 8.0
    desk.now = 7.9
    desk.see(desk.core.tick(desk.now))
    assert len(desk.running) == 1
    desk.now = 8.0
    desk.see(desk.core.tick(desk.now))
    assert len(desk.running) == 2
    assert desk.core.wake_at(desk.now) is None


# -- endpoints that say nothing ------------------------------------------------------------------


def give_up(desk: Desk, after_s: float, unanswered: bool = True) -> None:
    """One caller comes, and the one that came before it leaves."""
    grant = desk.running[0]
    desk.ask("chat")
    desk.now += after_s
    grant.unanswered = unanswered
    desk.finish(grant, Ending(Outcome.CANCELLED))


def test_an_endpoint_that_answers_nobody_is_broken_though_no_caller_waits_long() -> None:
    desk = one_model(4)
    desk.ask("chat")
    for _ in range(7):
        give_up(desk, 2.0)
        assert not desk.refused
    for _ in range(3):
        give_up(desk, 2.0)
    desk.ask("chat")
    assert reasons(desk) == [Reason.UNAVAILABLE]


def test_an_answer_to_anybody_ends_the_silence() -> None:
    desk = one_model(4)
    desk.ask_many("chat", 2)
    for _ in range(20):
        give_up(desk, 10.0)
        desk.ask("chat")
        desk.finish(desk.running[-1])
    assert not desk.refused


def test_where_nothing_ran_meanwhile_there_was_no_silence() -> None:
    desk = one_model(4)
    for _ in range(20):
        desk.now += 60.0
        grant = desk.ask("chat") and desk.running[0]
        grant.unanswered = True
        desk.now += 10.0
        desk.finish(grant, Ending(Outcome.CANCELLED))
    assert not desk.refused


def test_an_endpoint_that_still_streams_to_somebody_is_not_silent() -> None:
    desk = one_model(4)
    desk.ask_many("chat", 2)
    first_token = Timing(TimingKind.FIRST_TOKEN, 0.1, 10)
    desk.see(desk.core.timing(desk.running.pop(), first_token, desk.now))
    for _ in range(20):
        give_up(desk, 30.0)
    assert not desk.refused


def test_one_that_usually_takes_long_gets_its_time() -> None:
    desk = one_model(4)
    desk.ask("chat")
    desk.now = 40.0
    desk.finish(desk.running[0])
    desk.ask("chat")
    for _ in range(11):
        give_up(desk, 10.0)
    assert not desk.refused


def test_callers_that_asked_nothing_of_it_say_nothing_by_leaving() -> None:
    desk = one_model(4)
    desk.ask("chat")
    for _ in range(20):
        give_up(desk, 30.0, unanswered=False)
    assert not desk.refused


@pytest.mark.parametrize(
    "outcome", [Outcome.CLIENT_ERROR, Outcome.CONFIGURATION, Outcome.CANCELLED, Outcome.OK]
)
def test_a_wish_that_came_with_somebodys_mistake_stops_nobody_else(outcome: Outcome) -> None:
    desk = one_model(2)
    desk.ask_many("chat", 3)
    desk.finish(desk.running[0], Ending(outcome, retry_after_s=7.0))
    assert len(desk.running) == 2
    assert desk.core.wake_at(0.0) is None


@pytest.mark.parametrize(
    "outcome", [Outcome.CONGESTION, Outcome.LOADING, Outcome.FAILURE, Outcome.TIMEOUT]
)
def test_a_wish_counts_from_an_endpoint_that_could_not_serve(outcome: Outcome) -> None:
    desk = one_model(2)
    desk.ask_many("chat", 3)
    desk.finish(desk.running[0], Ending(outcome, retry_after_s=7.0))
    assert desk.core.wake_at(0.0) == 7.0


def test_flex_work_that_waits_for_a_pause_to_end_is_looked_at_too() -> None:
    desk = one_model(1)
    desk.ask("chat")
    desk.ask("chat", BEST_EFFORT)
    desk.finish(desk.running[0], Ending(Outcome.CONGESTION, retry_after_s=7.0))
    assert desk.core.wake_at(0.0) == 7.0


def test_a_driver_that_is_late_is_told_to_look_soon_and_never_in_the_past() -> None:
    desk = one_model(1)
    desk.ask_many("chat", 2)
    desk.finish(desk.running[0], Ending(Outcome.CONGESTION, retry_after_s=7.0))
    assert 9.0 < desk.core.wake_at(9.0) < 9.01


def test_a_shorter_wish_does_not_cut_a_longer_one_short() -> None:
    desk = one_model(3)
    desk.ask_many("chat", 4)
    desk.finish(desk.running[0], Ending(Outcome.CONGESTION, retry_after_s=9.0))
    desk.finish(desk.running[0], Ending(Outcome.CONGESTION, retry_after_s=2.0))
    assert desk.core.wake_at(0.0) == 9.0


@pytest.mark.parametrize("ending", [OK, Ending(Outcome.CONGESTION)])
def test_an_endpoint_that_names_no_time_is_not_left_alone(ending: Ending) -> None:
    desk = one_model(1)
    desk.ask_many("chat", 2)
    desk.finish(desk.running[0], ending)
    assert len(desk.running) == 1


def test_whoever_comes_after_the_pause_does_not_wait_for_the_driver_to_look() -> None:
    desk = one_model(1, bounds=QueueBounds(max_requests=1))
    desk.ask_many("chat", 2)
    desk.finish(desk.running[0], Ending(Outcome.CONGESTION, retry_after_s=7.0))
    desk.now = 8.0
    desk.ask("chat")
    assert len(desk.running) == 1, "the one that waited starts although the new one is refused"
    assert reasons(desk) == [Reason.QUEUE_FULL]
