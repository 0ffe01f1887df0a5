"""A backlog before an endpoint that was away: what comes back slowly is not knocked over again."""

from __future__ import annotations

import pytest

from forebay.core.breaker import BreakerSettings, BreakerState
from forebay.core.model import Ending, EngineState, Outcome, Signal
from support.deployments import OK, Desk, admission, endpoint

FAILED = Ending(Outcome.FAILURE)


def one_embedder(ceiling: int = 16, floor: int = 1) -> Desk:
    breaker = BreakerSettings(jitter=0.0)
    embedder = endpoint("embed", interactive=False, floor=floor, ceiling=ceiling)
    return Desk(admission(embedder, breaker=breaker))


def seen(desk: Desk):
    return desk.core.states["embed@a"].breaker.snapshot(desk.now)


def trip(desk: Desk) -> None:
    desk.ask_many("embed", 3)
    for grant in list(desk.running):
        desk.finish(grant, FAILED)
    assert seen(desk).state is BreakerState.OPEN


@pytest.mark.parametrize("floor", [1, 2])
def test_a_backlog_does_not_break_again_what_has_just_come_back(floor: int) -> None:
    """For its first minute it bears twice its floor; requests take half a second."""
    desk = one_embedder(floor=floor)
    trip(desk)
    back_at, most, left = None, 0, 2000
    while left:
        assert desk.now < 600
        desk.now += 0.5
        running = list(desk.running)
        fragile = back_at is None or desk.now - back_at <= 30
        ending = FAILED if fragile and len(running) > 2 * floor else OK
        for grant in running:
            desk.finish(grant, ending)
            left -= ending is OK
        if back_at is None and seen(desk).state is BreakerState.CLOSED:
            back_at = desk.now
        most = max(most, len(desk.running))
        desk.see(desk.core.tick(desk.now))
        desk.ask_many("embed", min(left, 32) - len(desk.waiting) - len(desk.running))
    assert seen(desk).trips == 1
    assert most == 16, "it got all its slots back"


def test_nothing_that_an_engine_says_of_itself_closes_its_breaker() -> None:
    desk = one_embedder()
    trip(desk)
    for _ in range(100):
        desk.now += 1.0
        idle = Signal("tei", at=desk.now, state=EngineState.AWAKE, waiting=0, saturated=False)
        desk.see(desk.core.signal("embed@a", idle, desk.now))
        desk.see(desk.core.tick(desk.now))
    assert seen(desk).state is BreakerState.HALF_OPEN
    desk.ask("embed")
    assert [grant.pass_.probe for grant in desk.running] == [True]


def test_who_answers_small_requests_and_dies_of_batches_is_left_alone_ever_longer() -> None:
    desk = one_embedder()
    trip(desk)
    pauses = []
    while len(pauses) < 8:
        pauses.append(seen(desk).remaining_s)
        desk.now += pauses[-1]
        desk.ask("embed")  # a small one
        desk.finish(desk.running[0])
        assert seen(desk).state is BreakerState.CLOSED
        for _ in range(3):  # and batches
            desk.ask("embed")
            desk.finish(desk.running[0], FAILED)
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300]
    assert seen(desk).trips == 9
