"""Endpoints come and go, and budgets with them, while requests run and wait."""

from __future__ import annotations

import pytest

from forebay.core.breaker import BreakerSettings
from forebay.core.limits.knee import Knee
from forebay.core.model import Ending, EngineState, Outcome, Reason, Signal
from forebay.core.protection import ProtectionSettings
from support.deployments import BEST_EFFORT, Desk, admission, endpoint


def chat(host: str = "a", **more):
    more.setdefault("ceiling", 2)
    return endpoint("chat", host=host, group=f"gpu-{host}", **more)


def add(desk: Desk, one) -> None:
    desk.see(desk.core.add(one, desk.now))


def drain(desk: Desk, endpoint_id: str) -> None:
    desk.see(desk.core.drain(endpoint_id, desk.now))


def remove(desk: Desk, endpoint_id: str) -> None:
    desk.see(desk.core.remove(endpoint_id, desk.now))


def on(desk: Desk, endpoint_id: str) -> list:
    return [g for g in desk.running if g.endpoint.id == endpoint_id]


def test_a_new_endpoint_takes_at_once_what_waits() -> None:
    desk = Desk(admission(chat()))
    desk.ask_many("chat", 5)
    add(desk, chat("b"))
    assert len(on(desk, "chat@b")) == 2
    assert len(desk.waiting) == 1


def learning(*endpoints, **limits: int) -> Desk:
    """Endpoints by the law `knee`, of which some have already got to a limit, by their hosts."""
    desk = Desk(admission(*endpoints, law=lambda e: Knee(e.floor, e.ceiling)))
    for host, limit in limits.items():
        desk.core.states[f"chat@{host}"].law.restart(now=0.0, limit=limit)
    for state in desk.core.states.values():
        state.look(0.0)
    return desk


def limit_of(desk: Desk, host: str) -> int:
    return desk.core.states[f"chat@{host}"].limit


def test_a_new_endpoint_begins_at_the_least_limit_of_the_others() -> None:
    desk = learning(chat(ceiling=64), chat("b", ceiling=64), a=20, b=12)
    desk.ask_many("chat", 40)
    add(desk, chat("c", ceiling=64))
    assert limit_of(desk, "c") == 12
    assert len(on(desk, "chat@c")) == 8
    add(desk, chat("d", ceiling=10))
    assert limit_of(desk, "d") == 10


def test_a_new_endpoint_takes_no_example_by_one_that_is_or_was_away() -> None:
    desk = learning(chat(ceiling=64), chat("b", ceiling=64), a=20)
    broken = desk.core.states["chat@b"]
    broken.signal = Signal("vllm", 0.0, state=EngineState.LOADING)
    broken.look(0.0)
    add(desk, chat("c", ceiling=64))
    assert limit_of(desk, "c") == 20


def test_a_new_endpoint_of_a_model_that_has_none_begins_at_its_floor() -> None:
    desk = learning(chat(ceiling=64), a=20)
    add(desk, endpoint("other", host="b", ceiling=64))
    assert desk.core.states["other@b"].limit == 1
    add(desk, chat("c", ceiling=64, floor=30))
    assert limit_of(desk, "c") == 30


def test_a_new_model_can_be_asked_for() -> None:
    desk = Desk(admission(chat()))
    add(desk, endpoint("embed", interactive=False))
    desk.ask("embed")
    assert desk.counts("embed") == (1,)


def test_an_endpoint_that_drains_finishes_what_it_has_and_gets_nothing_more() -> None:
    desk = Desk(admission(chat(), chat("b")))
    desk.ask_many("chat", 6)
    drain(desk, "chat@a")
    assert len(on(desk, "chat@a")) == 2
    for grant in on(desk, "chat@a"):
        desk.finish(grant)
    assert (len(on(desk, "chat@a")), len(on(desk, "chat@b"))) == (0, 2)
    assert not desk.refused
    remove(desk, "chat@a")
    assert list(desk.core.states) == ["chat@b"]
    while desk.running:
        desk.finish(desk.running[0])
    assert not desk.waiting


def test_whoever_waits_for_nothing_else_is_refused_when_the_last_endpoint_drains() -> None:
    desk = Desk(admission(chat()))
    desk.ask_many("chat", 5)
    drain(desk, "chat@a")
    desk.ask("chat")
    assert [r.reason for r in desk.refused] == [Reason.UNAVAILABLE] * 4
    for grant in list(desk.running):
        desk.finish(grant)
    remove(desk, "chat@a")
    desk.waiting.append(ticket := desk.refused[0].ticket)
    desk.see(desk.core.request(ticket, 1.0))
    assert desk.refused[-1].reason is Reason.UNKNOWN_MODEL
    assert not desk.core.queues
    assert not desk.core.rooms


def test_an_endpoint_with_something_in_flight_is_not_removed() -> None:
    desk = Desk(admission(chat()))
    desk.ask("chat")
    with pytest.raises(ValueError, match="'chat@a' still has 1 requests in flight"):
        remove(desk, "chat@a")


def test_an_endpoint_that_drains_can_be_added_again_with_other_settings() -> None:
    desk = Desk(admission(chat()))
    desk.ask_many("chat", 2)
    drain(desk, "chat@a")
    drain(desk, "chat@a")
    add(desk, chat(ceiling=3))
    desk.ask_many("chat", 2)
    assert (len(desk.running), len(desk.waiting)) == (3, 1)


def test_an_endpoint_that_is_there_is_not_added_again() -> None:
    desk = Desk(admission(chat()))
    with pytest.raises(ValueError, match="is there already"):
        add(desk, chat())
    drain(desk, "chat@a")
    with pytest.raises(ValueError, match="is there still, as another one"):
        add(desk, chat(fallback_of="lite"))


def test_what_drains_keeps_its_slots_and_its_floor_goes_to_the_others() -> None:
    desk = Desk(
        admission(
            endpoint("chat", floor=3),
            endpoint("embed", interactive=False),
            budgets={"gpu": 6},
        )
    )
    desk.ask_many("chat", 1)
    desk.ask_many("embed", 9)
    assert desk.counts("embed") == (3,)
    drain(desk, "chat@a")
    assert desk.counts("chat", "embed") == (1, 5)
    desk.finish(desk.of("chat")[0])
    assert desk.counts("embed") == (6,)


def test_an_endpoint_whose_floor_does_not_fit_the_budget_changes_nothing() -> None:
    desk = Desk(admission(endpoint("chat", floor=3), budgets={"gpu": 4}))
    with pytest.raises(ValueError, match="'gpu': floors total 5, budget is 4"):
        add(desk, endpoint("lite", floor=2))
    assert list(desk.core.states) == ["chat@a"]
    assert len(desk.core.queues) == 2


def test_bounds_whose_floor_does_not_fit_the_budget_change_nothing() -> None:
    desk = Desk(admission(endpoint("chat", floor=3), budgets={"gpu": 4}))
    with pytest.raises(ValueError, match="floors total 5, budget is 4"):
        desk.core.set_bounds("chat@a", 5, 8, 0.0)
    assert desk.core.states["chat@a"].native.floor == 3


def test_a_budget_that_appears_binds_what_runs_already() -> None:
    desk = Desk(admission(endpoint("chat"), endpoint("embed", interactive=False)))
    desk.ask_many("chat", 3)
    desk.ask_many("embed", 4)
    desk.see(desk.core.set_budget("gpu", 6, 0.0))
    desk.ask("chat")
    assert len(desk.waiting) == 1
    desk.finish(desk.of("embed")[0])
    assert len(desk.waiting) == 1, "six run"
    desk.finish(desk.of("embed")[0])
    assert desk.counts("chat", "embed") == (4, 2)


def test_a_budget_that_vanishes_binds_nobody() -> None:
    desk = Desk(admission(endpoint("chat"), endpoint("lite"), budgets={"gpu": 2}))
    desk.ask_many("chat", 3)
    desk.ask_many("lite", 3)
    desk.see(desk.core.set_budget("gpu", None, 0.0))
    assert desk.counts("chat", "lite") == (3, 3)
    assert set(desk.core.rooms) == {"chat@a", "lite@a"}


def test_a_budget_may_be_there_before_its_group() -> None:
    desk = Desk(admission(chat()))
    desk.see(desk.core.set_budget("gpu-b", 1, 0.0))
    add(desk, chat("b"))
    desk.ask_many("chat", 9)
    assert len(on(desk, "chat@b")) == 1


def test_a_stand_in_takes_over_from_an_endpoint_that_drains() -> None:
    desk = Desk(
        admission(chat(), endpoint("chat", host="f", interactive=False, fallback_of="chat"))
    )
    desk.ask_many("chat", 4)
    drain(desk, "chat@a")
    assert len(on(desk, "chat@f")) == 2
    add(desk, chat("b"))
    desk.ask("chat")
    assert len(on(desk, "chat@b")) == 1


def test_a_stand_in_can_be_added_while_its_primary_is_away() -> None:
    desk = Desk(admission(chat(), breaker=BreakerSettings(fail_threshold=1)))
    desk.ask("chat")
    desk.finish(desk.running[0], Ending(Outcome.FAILURE))
    add(desk, endpoint("chat", host="f", interactive=False, fallback_of="chat"))
    desk.ask("chat", BEST_EFFORT)
    assert len(on(desk, "chat@f")) == 1
    remove_after = on(desk, "chat@f")[0]
    drain(desk, "chat@f")
    desk.ask("chat")
    assert desk.refused[-1].reason is Reason.UNAVAILABLE
    desk.finish(remove_after)
    remove(desk, "chat@f")


def test_a_guard_comes_with_the_first_chat_on_a_gpu_and_goes_with_the_last() -> None:
    """It counts what starts under it; what it held back goes on when it goes."""
    desk = Desk(
        admission(
            endpoint("embed", interactive=False, ceiling=9),
            endpoint("batch", interactive=False),
            protection=ProtectionSettings(),
        )
    )
    desk.ask_many("embed", 2)
    add(desk, endpoint("chat"))
    guard = desk.core.rooms["embed@a"].guard
    assert guard is desk.core.rooms["chat@a"].guard
    assert (guard.chats, guard.bulk) == (0, 0)
    desk.ask("chat")
    desk.ask_many("embed", 5)
    assert guard.bulk == 2, "the floors of both best-effort models"
    for grant in desk.of("embed")[:2]:
        desk.finish(grant)
    assert guard.bulk == 2
    drain(desk, "chat@a")
    assert not desk.waiting
    assert desk.core.rooms["embed@a"].guard is None
    while desk.running:
        desk.finish(desk.running[0])
    assert (guard.chats, guard.bulk) == (0, 0)
    remove(desk, "chat@a")


def test_an_endpoint_that_stood_in_line_leaves_no_place_behind() -> None:
    desk = Desk(
        admission(
            endpoint("chat", ceiling=4),
            endpoint("embed", interactive=False),
            endpoint("batch", interactive=False),
            budgets={"gpu": 3},
        )
    )
    desk.ask_many("chat", 4)
    assert desk.counts("chat") == (3,)
    desk.ask_many("embed", 1)
    desk.give_up(desk.waiting[-1])  # behind chat, which waits for room, nobody looks at the line
    drain(desk, "embed@a")
    assert desk.core.rooms["gpu"].best_effort
    remove(desk, "embed@a")
    assert not desk.core.rooms["gpu"].best_effort
    desk.ask("batch")
    for grant in desk.of("chat"):
        desk.finish(grant)
    assert desk.counts("chat", "batch") == (1, 1)


def test_a_model_that_nobody_serves_yet_is_expected_or_unknown() -> None:
    desk = Desk(admission(endpoint("chat")))
    desk.core.expect(["chat", "later"])
    desk.ask("later", BEST_EFFORT)
    assert desk.refused.pop().reason is Reason.UNAVAILABLE
    desk.see(desk.core.add(endpoint("later", host="b"), desk.now))
    desk.ask("later")
    assert desk.counts("later") == (1,)
    desk.finish(desk.running[0])
    desk.see(desk.core.remove("later@b", desk.now))
    desk.core.expect(["chat"])
    desk.ask("later", BEST_EFFORT)
    assert desk.refused.pop().reason is Reason.UNKNOWN_MODEL


def test_what_drains_takes_other_settings_but_no_floor() -> None:
    desk = Desk(admission(endpoint("chat"), endpoint("embed"), budgets={"gpu": 4}))
    desk.ask("embed")
    desk.see(desk.core.drain("embed@a", desk.now))
    desk.see(desk.core.set_bounds("embed@a", 4, 4, desk.now))
    desk.ask_many("chat", 5)
    assert desk.counts("chat", "embed") == (3, 1)


def test_no_budget_in_the_place_of_none_changes_nothing() -> None:
    desk = Desk(admission(endpoint("chat")))
    rooms = dict(desk.core.rooms)
    desk.see(desk.core.set_budget("gpu", None, desk.now))
    assert dict(desk.core.rooms) == rooms
