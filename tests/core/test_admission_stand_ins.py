"""A model's fallback serves while none of its own endpoints does, and no longer."""

from __future__ import annotations

import pytest

from forebay.core.breaker import BreakerSettings, BreakerState
from forebay.core.model import Ending, EngineState, Outcome, Reason, Signal
from support.deployments import BEST_EFFORT, INTERACTIVE, OK, Desk, admission, endpoint

FAILED = Ending(Outcome.FAILURE)
AT_ONCE = BreakerSettings(fail_threshold=1, jitter=0.0)


def embedder_with_fallback(**more) -> Desk:
    """An embedder on a GPU of its own; its fallback shares a budget of 6 with chat."""
    more.setdefault("breaker", AT_ONCE)
    return Desk(
        admission(
            endpoint("embed", group="gtx", interactive=False, ceiling=4),
            endpoint("chat", group="box", floor=2, ceiling=8),
            fallback("embed", ceiling=8),
            budgets={"gtx": 4, "box": 6},
            **more,
        )
    )


def fallback(model: str, ceiling: int = 8, group: str = "box"):
    return endpoint(
        model, host="f", group=group, interactive=False, ceiling=ceiling, fallback_of=model
    )


def hosts(desk: Desk) -> dict[str, int]:
    return {id_.removeprefix("embed@"): s.inflight for id_, s in desk.core.states.items()}


def at(desk: Desk, host: str) -> list:
    return [g for g in desk.running if g.endpoint.id == f"embed@{host}"]


def break_(desk: Desk) -> None:
    desk.ask("embed")
    desk.finish(at(desk, "a")[-1], FAILED)


def recover(desk: Desk) -> None:
    desk.now += 5.0
    desk.ask("embed")
    desk.finish(at(desk, "a")[-1])
    assert desk.core.states["embed@a"].breaker.state(desk.now) is BreakerState.CLOSED


def test_a_fallback_gets_nothing_while_its_primary_serves_however_many_wait() -> None:
    desk = embedder_with_fallback()
    desk.ask_many("embed", 20)
    assert (len(at(desk, "a")), len(at(desk, "f"))) == (4, 0)
    assert len(desk.waiting) == 16


def test_when_the_primary_breaks_whoever_waits_goes_on_at_the_fallback() -> None:
    desk = embedder_with_fallback()
    desk.ask_many("embed", 20)
    desk.finish(at(desk, "a")[0], FAILED)
    assert len(at(desk, "f")) == 4, "chat's two slots on the shared box stay free"
    assert not desk.refused
    desk.ask("embed")
    desk.finish(at(desk, "f")[0])
    assert len(at(desk, "f")) == 4


def test_a_fallback_may_serve_a_model_under_another_name() -> None:
    desk = Desk(
        admission(
            endpoint("embed", group="gtx", interactive=False, ceiling=4),
            endpoint("bge", host="f", group="box", interactive=False, fallback_of="embed"),
            breaker=AT_ONCE,
        )
    )
    break_(desk)
    desk.ask("embed")
    (grant,) = desk.running
    assert (grant.endpoint.id, grant.endpoint.model) == ("bge@f", "bge")


def test_a_fallback_is_best_effort_on_its_gpu_whatever_it_serves() -> None:
    desk = Desk(
        admission(
            endpoint("big", group="a"),
            endpoint("chat", group="box", ceiling=8),
            fallback("big"),
            budgets={"box": 4},
            breaker=AT_ONCE,
        )
    )
    desk.ask("big")
    desk.finish(desk.running[0], FAILED)
    desk.ask_many("big", 9)
    assert desk.counts("big") == (3,), "the floor of the chat model there stays free"
    desk.ask_many("chat", 5)
    for _ in range(2):
        desk.finish(desk.of("big")[0])
    assert desk.counts("big", "chat") == (1, 3), "it yields to that, down to its floor"
    assert all(not g.member.interactive for g in desk.of("big"))
    assert {g.ticket.service_class for g in desk.of("big")} == {INTERACTIVE}


def test_on_a_fallback_interactive_requests_go_before_best_effort_ones() -> None:
    desk = Desk(admission(endpoint("big", group="a"), fallback("big", ceiling=1), breaker=AT_ONCE))
    desk.ask("big")
    desk.finish(desk.running[0], FAILED)
    running = desk.ask("big")
    flex, quick = desk.ask("big", BEST_EFFORT), desk.ask("big")
    assert desk.order_of_starts() == [running, quick, flex]


def test_after_the_cooldown_one_request_tries_the_primary_and_all_others_stay() -> None:
    desk = embedder_with_fallback()
    break_(desk)
    desk.now = 5.0
    desk.ask_many("embed", 3)
    assert [g.pass_.probe for g in at(desk, "a")] == [True]
    assert len(at(desk, "f")) == 2
    desk.finish(at(desk, "a")[0], FAILED)
    desk.ask("embed")
    assert (len(at(desk, "a")), len(at(desk, "f"))) == (0, 3)


def test_a_primary_that_hangs_holds_up_its_probe_and_nobody_else() -> None:
    desk = embedder_with_fallback()
    break_(desk)
    started = {"a": 0, "f": 0}
    for step in range(240):
        desk.now = 5.0 + step * 0.25
        desk.see(desk.core.tick(desk.now))
        for grant in at(desk, "f"):
            desk.finish(grant)
        desk.ask("embed")
        assert not desk.waiting
        started[desk.running[-1].endpoint.id[-1]] += 1
    # Each time the probe's time is up, the cooldown is longer: 5 s (its end), 10 s, 20 s.
    assert started == {"a": 2, "f": 238}


def test_what_a_ramp_does_not_admit_stays_with_the_fallback_until_all_is_back() -> None:
    desk = embedder_with_fallback()
    break_(desk)
    recover(desk)
    desk.ask_many("embed", 4)
    assert (len(at(desk, "a")), len(at(desk, "f"))) == (1, 3)
    for grant in list(desk.running):
        desk.finish(grant)
    desk.now += 30.0
    desk.see(desk.core.tick(desk.now))
    desk.ask_many("embed", 4)
    assert (len(at(desk, "a")), len(at(desk, "f"))) == (2, 2)
    for grant in list(desk.running):
        desk.finish(grant)
    desk.now += 300.0
    desk.see(desk.core.tick(desk.now))
    desk.ask_many("embed", 6)
    assert (len(at(desk, "a")), len(at(desk, "f"))) == (4, 0)
    assert len(desk.waiting) == 2


def test_whoever_waits_when_the_primary_is_fully_back_waits_for_it_alone() -> None:
    desk = embedder_with_fallback()
    break_(desk)
    recover(desk)
    desk.ask_many("embed", 12)
    desk.now += 300.0
    desk.see(desk.core.tick(desk.now))
    assert len(at(desk, "a")) == 4
    waiting = len(desk.waiting)
    desk.finish(at(desk, "f")[0])
    assert len(desk.waiting) == waiting


def test_after_a_night_without_traffic_the_first_request_goes_to_the_primary() -> None:
    desk = embedder_with_fallback()
    break_(desk)
    desk.now = 3600.0
    desk.ask("embed")
    assert [g.pass_.probe for g in at(desk, "a")] == [True]


@pytest.mark.parametrize("state", [EngineState.ASLEEP, EngineState.LOADING])
def test_a_fallback_serves_while_the_primarys_engine_does_not(state: EngineState) -> None:
    desk = embedder_with_fallback()
    desk.see(desk.core.signal("embed@a", Signal("vllm", at=0.0, state=state), 0.0))
    desk.ask("embed")
    assert len(at(desk, "f")) == 1
    desk.see(desk.core.signal("embed@a", Signal("vllm", at=1.0), 1.0))
    desk.ask("embed")
    assert len(at(desk, "a")) == 1


def test_a_primary_that_asks_for_a_short_rest_is_waited_for() -> None:
    desk = embedder_with_fallback()
    desk.ask("embed")
    desk.finish(desk.running[0], Ending(Outcome.CONGESTION, retry_after_s=3.0))
    waiting = desk.ask("embed")
    assert desk.waiting == [waiting]


def test_a_fallback_serves_while_its_primary_asks_for_a_long_rest() -> None:
    desk = embedder_with_fallback()
    desk.ask_many("embed", 6)
    desk.finish(at(desk, "a")[0], Ending(Outcome.CONGESTION, retry_after_s=60.0))
    assert len(at(desk, "f")) == 2
    assert not desk.waiting
    desk.now = 60.0
    desk.see(desk.core.tick(desk.now))
    desk.ask("embed")
    assert (len(at(desk, "a")), len(at(desk, "f"))) == (4, 2)


def test_when_the_fallback_breaks_too_whoever_waits_is_refused() -> None:
    desk = embedder_with_fallback()
    break_(desk)
    desk.ask_many("embed", 9)
    desk.finish(at(desk, "f")[0], FAILED)
    assert not desk.waiting
    assert {r.reason for r in desk.refused} == {Reason.UNAVAILABLE}


def test_a_primary_that_is_down_for_a_minute_is_tried_at_most_once_a_cooldown() -> None:
    """Requests come one every 4 s; one that fails is asked again and avoids where it failed."""
    desk = embedder_with_fallback()
    tried = []
    for number in range(15):
        desk.now = 4.0 * number
        desk.ask("embed")
        grant = desk.running[-1]
        tried.append(grant.endpoint.id[-1])
        if tried[-1] == "a":
            desk.finish(grant, FAILED)
            desk.ask("embed", avoid=frozenset({"embed@a"}))
            grant = desk.running[-1]
            assert grant.endpoint.id == "embed@f"
        desk.finish(grant)
    assert tried[0] == "a"
    assert tried.count("a") <= 4, "at 0 s, and after 5, 10 and 20 s"
    desk.now += 60.0
    desk.ask("embed")
    desk.finish(at(desk, "a")[0])
    assert not desk.refused


# -- where a request failed already ----------------------------------------------------------------


def test_a_request_that_failed_at_every_regular_endpoint_goes_to_the_fallback() -> None:
    desk = embedder_with_fallback(breaker=BreakerSettings())
    desk.ask("embed", avoid=frozenset({"embed@a"}))
    desk.ask("embed")
    assert (len(at(desk, "a")), len(at(desk, "f"))) == (1, 1)


def test_a_request_avoids_where_it_failed_while_another_endpoint_could_serve_it() -> None:
    desk = Desk(
        admission(
            endpoint("chat", host="a", group="a", ceiling=4),
            endpoint("chat", host="b", group="b", ceiling=1),
            breaker=AT_ONCE,
        )
    )
    desk.ask_many("chat", 2)
    avoiding = desk.ask("chat", avoid=frozenset({"chat@b"}))
    assert desk.running[-1].ticket is avoiding
    waiting = desk.ask("chat", avoid=frozenset({"chat@a"}))
    assert desk.waiting == [waiting], "it waits for b, although a has room"
    behind = desk.ask("chat")
    assert desk.running[-1].ticket is behind
    desk.finish(next(g for g in desk.running if g.endpoint.id == "chat@b"))
    assert desk.running[-1].ticket is waiting


def test_where_no_other_endpoint_is_left_a_request_goes_where_it_failed() -> None:
    desk = Desk(
        admission(
            endpoint("chat", host="a", group="a"),
            endpoint("chat", host="b", group="b", ceiling=1),
            breaker=AT_ONCE,
        )
    )
    desk.ask("chat", avoid=frozenset({"chat@a"}))
    waiting = desk.ask("chat", avoid=frozenset({"chat@a"}))
    desk.finish(desk.running[0], FAILED)
    assert [g.endpoint.id for g in desk.running] == ["chat@a"]
    assert desk.running[0].ticket is waiting
    desk.ask("chat", avoid=frozenset({"chat@a", "chat@b"}))
    assert len(desk.running) == 2


def test_requests_that_avoid_different_endpoints_start_in_the_order_in_which_they_came() -> None:
    desk = Desk(
        admission(
            endpoint("chat", host="a", group="a", ceiling=1),
            endpoint("chat", host="b", group="b", ceiling=1),
        )
    )
    desk.ask_many("chat", 2)
    first = desk.ask("chat", avoid=frozenset({"chat@b"}))
    second = desk.ask("chat")
    third = desk.ask("chat", avoid=frozenset({"chat@b"}))
    assert list(desk.core.queues["chat", INTERACTIVE]) == [first, second, third]
    grant = next(g for g in desk.running if g.endpoint.id == "chat@a")
    desk.finish(grant)
    assert desk.running[-1].ticket is first
    desk.finish(desk.running[-1])
    assert desk.running[-1].ticket is second
    desk.give_up(third)
    assert not desk.waiting


# -- an endpoint that serves one model and stands in for another -----------------------------------


def test_an_endpoint_that_serves_its_own_model_too_has_one_limit_for_both() -> None:
    desk = Desk(
        admission(
            endpoint("big", group="a"),
            endpoint("small", group="b", floor=2, ceiling=4, also_for=("big",)),
            breaker=AT_ONCE,
        )
    )
    desk.ask("big")
    desk.finish(desk.running[0], FAILED)
    desk.ask_many("big", 5)
    assert desk.counts("big") == (2,), "it leaves the floor of its own model free"
    assert {g.endpoint.model for g in desk.running} == {"small"}
    desk.ask_many("small", 5)
    assert desk.counts("big", "small") == (2, 2)
    desk.finish(desk.of("big")[0])
    assert desk.counts("big", "small") == (1, 3), "its own go first"
    assert desk.core.states["small@a"].inflight_by_class == {INTERACTIVE: 3, BEST_EFFORT: 1}


def test_an_endpoint_stands_in_for_a_model_that_has_no_endpoint_of_its_own_yet() -> None:
    desk = Desk(admission(fallback("embed")))
    desk.ask("embed", BEST_EFFORT)
    assert desk.counts("embed") == (1,)


def test_a_fallback_is_released_like_any_other_endpoint() -> None:
    desk = embedder_with_fallback()
    break_(desk)
    desk.ask_many("embed", 3)
    for grant in list(desk.running):
        desk.finish(grant, OK)
    assert desk.core.live == 0
    assert sum(hosts(desk).values()) == 0
