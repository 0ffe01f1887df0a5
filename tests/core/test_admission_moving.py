"""Limits, budgets and floors that move while requests run and wait."""

from __future__ import annotations

import pytest

from forebay.core.admission import Observer
from forebay.core.model import Decision, Ending, Outcome, Reason, Timing, TimingKind
from forebay.core.queue import QueueBounds
from support.deployments import BEST_EFFORT, OK, Desk, admission, endpoint


def one_model(ceiling: int, **more) -> Desk:
    return Desk(admission(endpoint("chat", ceiling=ceiling), **more))


def move_limit(desk: Desk, model: str, ceiling: int, *, floor: int = 1) -> None:
    desk.see(desk.core.set_bounds(f"{model}@a", floor, ceiling, desk.now))


def move_budget(desk: Desk, budget: int) -> None:
    desk.see(desk.core.set_budget("gpu", budget, desk.now))


def test_a_limit_below_what_runs_revokes_nothing_and_admits_nothing_until_below() -> None:
    desk = one_model(10)
    desk.ask_many("chat", 30)
    move_limit(desk, "chat", 3)
    assert len(desk.running) == 10
    move_limit(desk, "chat", 1)
    for left in range(9, 0, -1):
        desk.finish(desk.running[0])
        assert len(desk.running) == left
    for _ in range(5):
        desk.finish(desk.running[0])
        assert len(desk.running) == 1


def test_a_raised_limit_wakes_waiters_at_once_in_order() -> None:
    desk = one_model(1)
    tickets = desk.ask_many("chat", 20)
    move_limit(desk, "chat", 5)
    assert [g.ticket for g in desk.running] == tickets[:5]


def test_a_budget_below_what_runs_revokes_nothing_and_admits_nothing_until_below() -> None:
    desk = Desk(
        admission(
            endpoint("chat", floor=2), endpoint("embed", interactive=False), budgets={"gpu": 8}
        )
    )
    desk.ask_many("embed", 20)
    assert len(desk.running) == 6
    move_budget(desk, 4)
    desk.ask("chat")
    assert desk.counts("chat", "embed") == (0, 6)
    for _ in range(3):
        desk.finish(desk.of("embed")[0])
    assert desk.counts("chat", "embed") == (1, 3)
    for _ in range(2):
        desk.finish(desk.of("embed")[0])
    assert desk.counts("chat", "embed") == (1, 2)


def test_a_raised_budget_wakes_waiters_at_once() -> None:
    desk = Desk(admission(endpoint("chat"), budgets={"gpu": 2}))
    tickets = desk.ask_many("chat", 9)
    move_budget(desk, 5)
    assert [g.ticket for g in desk.running] == tickets[:5]


def test_a_budget_below_the_floors_is_refused_and_changes_nothing() -> None:
    desk = Desk(admission(endpoint("chat", floor=3), endpoint("lite"), budgets={"gpu": 5}))
    with pytest.raises(ValueError, match="floors total 4, budget is 3"):
        move_budget(desk, 3)
    assert desk.core.rooms["gpu"].budget == 5


def test_a_floor_that_does_not_fit_the_budget_is_refused_and_changes_nothing() -> None:
    desk = Desk(admission(endpoint("chat", floor=3), endpoint("lite"), budgets={"gpu": 5}))
    with pytest.raises(ValueError, match="floors total 6, budget is 5"):
        move_limit(desk, "chat", 9, floor=5)
    assert desk.core.states["chat@a"].native.floor == 3


def test_a_floor_that_moves_is_reserved_from_then_on() -> None:
    desk = Desk(
        admission(endpoint("chat"), endpoint("embed", interactive=False), budgets={"gpu": 6})
    )
    move_limit(desk, "chat", 9, floor=3)
    desk.ask_many("embed", 9)
    assert desk.counts("embed") == (3,)
    move_limit(desk, "chat", 9, floor=1)
    assert desk.counts("embed") == (5,)


def test_flex_work_gets_at_once_what_a_lower_floor_no_longer_reserves() -> None:
    desk = Desk(admission(endpoint("chat", floor=4, ceiling=5)))
    desk.ask_many("chat", 9, BEST_EFFORT)
    assert len(desk.running) == 1
    move_limit(desk, "chat", 5, floor=1)
    assert len(desk.running) == 4


def test_whoever_a_new_budget_leaves_no_room_for_is_refused_at_once() -> None:
    desk = Desk(admission(endpoint("chat", floor=2), budgets={"gpu": 3}))
    desk.ask_many("chat", 3, BEST_EFFORT)
    move_budget(desk, 2)
    assert [r.reason for r in desk.refused] == [Reason.NO_ROOM] * 2
    assert not desk.waiting


def test_a_heavy_request_shrinks_with_the_budget_that_it_waits_for() -> None:
    """It asks for more than there is; when that gets less, it may fit beside what runs."""
    desk = Desk(
        admission(
            endpoint("chat"),
            endpoint("embed", interactive=False, ceiling=4),
            budgets={"gpu": 9},
        )
    )
    desk.ask_many("embed", 2)
    heavy = desk.ask("embed", weight=4)
    assert heavy in desk.waiting
    move_limit(desk, "chat", 7, floor=7)
    assert [g.weight for g in desk.running] == [1, 1]
    desk.finish(desk.running[0])
    desk.finish(desk.running[0])
    assert [g.weight for g in desk.running] == [2]


# -- what moves a limit --------------------------------------------------------------------------


class Scripted:
    """A limit law that does what it is told, and notes what it was told."""

    def __init__(self) -> None:
        self.decision = Decision(1, "start")
        self.heard: list[tuple] = []

    def to(self, limit: int) -> Decision:
        self.decision = Decision(limit, "grew: told to")
        return self.decision

    def on_timing(self, timing, *, started_at, inflight, now):
        self.heard.append(("timing", timing.seconds, started_at, inflight, now))
        return self.to(int(timing.size))

    def on_end(self, outcome, *, started_at, inflight, now, work):
        self.heard.append((outcome, started_at, inflight, now, work))

    def on_signal(self, signal, *, now):
        self.heard.append(("signal", signal, now))
        return self.to(2)

    def restart(self, **_):
        raise AssertionError

    def resize(self, **_):
        raise AssertionError


class Heard(Observer):
    def __init__(self) -> None:
        self.limits: list[tuple[str, int, float]] = []

    def limit_changed(self, endpoint, decision, now) -> None:
        self.limits.append((endpoint.id, decision.limit, now))


def reading(limit: int) -> Timing:
    return Timing(TimingKind.FIRST_TOKEN, 0.25, limit)


def test_a_first_token_moves_the_limit_while_its_request_still_runs() -> None:
    law, heard = Scripted(), Heard()
    desk = one_model(32, law=lambda _: law, observer=heard)
    desk.ask_many("chat", 4)
    desk.now = 3.0
    grant = desk.running[0]
    desk.see(desk.core.timing(grant, reading(3), desk.now))
    assert len(desk.running) == 3
    assert law.heard == [("timing", 0.25, 0.0, 1, 3.0)]
    assert heard.limits == [("chat@a", 3, 3.0)]


def test_an_end_brings_its_readings_and_then_its_outcome_before_the_slot_is_counted_free() -> None:
    law = Scripted()
    desk = one_model(32, law=lambda _: law)
    desk.ask("chat")
    desk.now = 5.0
    desk.finish(desk.running[0], Ending(Outcome.OK, (reading(2), reading(4)), work=60.0))
    assert law.heard == [
        ("timing", 0.25, 0.0, 1, 5.0),
        ("timing", 0.25, 0.0, 1, 5.0),
        (Outcome.OK, 0.0, 1, 5.0, 60.0),
    ]


def test_a_signal_moves_the_limit() -> None:
    law = Scripted()
    desk = one_model(32, law=lambda _: law)
    desk.ask_many("chat", 3)
    desk.see(desk.core.signal("chat@a", None, 1.0))
    assert len(desk.running) == 2


# -- promises about slots ------------------------------------------------------------------------


def test_a_slot_that_is_released_twice_raises_and_counts_once() -> None:
    desk = one_model(2)
    desk.ask("chat")
    grant = desk.running[0]
    desk.finish(grant)
    with pytest.raises(ValueError, match="'chat@a' was released twice"):
        desk.core.release(grant, OK, 0.0)
    assert desk.core.live == 0
    assert desk.core.states["chat@a"].inflight == 0


def test_cancelling_what_does_not_wait_does_nothing() -> None:
    desk = one_model(2)
    ticket = desk.ask("chat")
    assert desk.core.cancel(ticket, 0.0) == []
    assert desk.core.live == 1


def test_what_is_there_can_be_read_in_a_debugger() -> None:
    desk = one_model(2, budgets={"gpu": 3})
    desk.ask_many("chat", 3)
    state = desk.core.states["chat@a"]
    assert repr(desk.running[0]) == (
        "<Grant of 1 on <Member chat@a interactive: 2 in flight, 1 waiting, floor 1>>"
    )
    assert repr(state) == "<EndpointState chat@a: 2 of 2>"
    assert repr(state.native.queue) == "<Queue chat interactive: 1 waiting>"
    assert repr(desk.core).startswith("<Admission: 2 live, [<Room gpu: 2 of 3, [<Member chat@a")


def on_two_gpus(**budgets: int) -> Desk:
    made = (endpoint("chat", floor=2), endpoint("lite", floor=2, group="other"))
    return Desk(admission(*made, budgets=budgets))


def test_an_endpoint_on_another_gpu_takes_along_what_it_runs() -> None:
    desk = on_two_gpus(gpu=2, other=6)
    desk.ask_many("chat", 3)
    desk.ask("lite")
    desk.see(desk.core.move("chat@a", "other", desk.now))
    assert "gpu" not in desk.core.rooms
    assert desk.core.rooms["other"].inflight == len(desk.running) == 4
    desk.see(desk.core.change(endpoint("chat", floor=2, group="other"), desk.now))
    while desk.running:
        desk.finish(desk.running[0])
    assert desk.core.rooms["other"].inflight == 0
    desk.ask_many("lite", 9)
    assert desk.counts("lite") == (4,), "chat's floor is kept there"


def test_who_is_left_on_a_gpu_takes_the_room_at_once() -> None:
    desk = Desk(admission(endpoint("chat"), endpoint("lite"), budgets={"gpu": 2}))
    desk.ask("chat")
    desk.ask_many("lite", 2)
    assert desk.counts("chat", "lite") == (1, 1)
    desk.see(desk.core.move("chat@a", "other", desk.now))
    assert desk.counts("chat", "lite") == (1, 2)


def test_two_endpoints_can_change_gpus_that_have_room_for_one() -> None:
    desk = on_two_gpus(gpu=2, other=2)
    desk.see(desk.core.move("chat@a", "other", desk.now))
    desk.see(desk.core.move("lite@a", "gpu", desk.now))
    desk.see(desk.core.change(endpoint("chat", floor=2, group="other"), desk.now))
    desk.see(desk.core.change(endpoint("lite", floor=2), desk.now))
    desk.ask_many("chat", 3)
    desk.ask_many("lite", 3)
    assert desk.counts("chat", "lite") == (2, 2)


def test_an_endpoint_that_drains_can_be_moved_too_and_serve_again_there() -> None:
    desk = on_two_gpus(other=6)
    desk.ask("chat")
    desk.see(desk.core.drain("chat@a", desk.now))
    desk.see(desk.core.move("chat@a", "other", desk.now))
    assert desk.core.rooms["other"].inflight == 1
    desk.see(desk.core.add(endpoint("chat", floor=2), desk.now))
    assert desk.core.rooms["other"].inflight == 0
    desk.ask("chat")
    assert desk.counts("chat") == (2,)


def test_what_a_request_takes_moves_with_the_settings() -> None:
    desk = Desk(admission(endpoint("chat", ceiling=4, slot_weight=4)))
    desk.ask_many("chat", 3)
    assert desk.counts("chat") == (1,)
    desk.finish(desk.running[0])
    desk.see(desk.core.change(endpoint("chat", ceiling=4, slot_weight=2), desk.now))
    desk.ask("chat")
    desk.finish(desk.running[0])
    assert desk.counts("chat") == (2,)


def test_settings_that_make_another_endpoint_are_refused() -> None:
    desk = on_two_gpus()
    for other in (endpoint("chat", group="other"), endpoint("chat", interactive=False)):
        with pytest.raises(ValueError, match="as another one"):
            desk.core.change(other, desk.now)


def test_more_or_less_may_wait() -> None:
    desk = one_model(1)
    desk.ask_many("chat", 4)
    desk.core.set_queue_bounds(QueueBounds(max_requests=3))
    desk.ask("chat")
    assert [refusal.reason for refusal in desk.refused] == [Reason.QUEUE_FULL]
    assert len(desk.waiting) == 3
    desk.core.set_queue_bounds(QueueBounds(max_requests=4))
    desk.ask("chat")
    assert len(desk.waiting) == 4
