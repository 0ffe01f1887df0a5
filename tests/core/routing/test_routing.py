"""Where a request starts when several endpoints could take it."""

from __future__ import annotations

from collections import Counter

import pytest

from forebay.core.breaker import BreakerSettings
from forebay.core.model import Ending, EngineState, Outcome, Signal
from support.deployments import BEST_EFFORT, INTERACTIVE, Desk, admission, endpoint

FAILED = Ending(Outcome.FAILURE)
KEYS = [f"session-{n}" for n in range(400)]


def hosts(*names: str, ceiling: int = 8, **ceilings: int) -> Desk:
    """A chat model on several hosts, each a GPU of its own."""
    return Desk(
        admission(
            *(
                endpoint("m", host=name, group=name, ceiling=ceilings.get(name, ceiling))
                for name in names
            ),
            breaker=BreakerSettings(fail_threshold=1, jitter=0.0),
        )
    )


def where(desk: Desk, ticket) -> str:
    grant = next(g for g in desk.running if g.ticket is ticket)
    return grant.endpoint.id.removeprefix("m@")


def at(desk: Desk, host: str) -> list:
    return [g for g in desk.running if g.endpoint.id == f"m@{host}"]


def loads(desk: Desk) -> dict[str, int]:
    return {id_.removeprefix("m@"): s.inflight for id_, s in desk.core.states.items()}


def key_of(desk: Desk, host: str, without: tuple[str, ...] = ()) -> str:
    """A key that prefers `host`."""
    rendezvous = desk.core.states[f"m@{host}"].pool.rendezvous
    state = desk.core.states[f"m@{host}"]
    return next(k for k in KEYS if k not in without and rendezvous.order(k)[0] is state)


def hear(desk: Desk, host: str, **said) -> None:
    signal = Signal("vllm", at=desk.now, **said)
    desk.see(desk.core.signal(f"m@{host}", signal, desk.now))


# -- least in flight -------------------------------------------------------------------------------


def test_requests_go_where_the_largest_share_of_the_limit_is_free() -> None:
    desk = hosts("a", "b", "c", a=4, b=8, c=20)
    desk.ask_many("m", 16)
    assert loads(desk) == {"a": 2, "b": 4, "c": 10}
    desk.finish(at(desk, "a")[0])
    assert where(desk, desk.ask("m")) == "a"


def test_equals_come_at_random() -> None:
    desk = hosts(*"abcd")
    first = Counter()
    for _ in range(400):
        first[where(desk, desk.ask("m"))] += 1
        desk.finish(desk.running[0])
    assert set(first) == set("abcd")
    assert min(first.values()) >= 60


def test_what_others_have_at_an_engine_counts_too_but_not_for_long() -> None:
    desk = hosts("a", "b")
    hear(desk, "a", running=5.0, waiting=2.0)
    desk.ask_many("m", 5)
    assert loads(desk) == {"a": 0, "b": 5}
    desk.now += 14.9
    assert where(desk, desk.ask("m")) == "b"
    desk.now += 0.1
    assert where(desk, desk.ask("m")) == "a"
    assert loads(desk) == {"a": 1, "b": 6}


def test_what_an_engine_says_anew_replaces_what_it_said_before() -> None:
    desk = hosts("a", "b")
    hear(desk, "a", running=5.0)
    hear(desk, "a", running=0.0)
    hear(desk, "b", running=1.0)
    assert where(desk, desk.ask("m")) == "a"


def test_our_own_requests_do_not_count_twice() -> None:
    desk = hosts("a", "b")
    desk.ask_many("m", 4)
    hear(desk, "a", running=2.0)
    desk.ask_many("m", 2)
    assert loads(desk) == {"a": 3, "b": 3}


def test_an_engine_that_tells_late_of_what_has_ended_is_not_taken_for_a_busy_one() -> None:
    desk = hosts("a", "b")
    desk.ask_many("m", 8)
    for grant in at(desk, "a"):
        desk.finish(grant)
    hear(desk, "a", running=4.0)
    assert where(desk, desk.ask("m")) == "a"


def test_a_burst_is_spread_though_all_engines_still_say_that_they_are_idle() -> None:
    """Their gauges may trail by many seconds."""
    desk = hosts("a", "b", ceiling=16)
    for _ in range(16):
        hear(desk, "a", running=0.0, waiting=0.0)
        hear(desk, "b", running=0.0, waiting=0.0)
        desk.now += 0.006
        desk.ask("m")
    assert loads(desk) == {"a": 8, "b": 8}


def test_an_engine_asleep_gets_nothing_although_it_says_that_nothing_runs() -> None:
    desk = hosts("a", "b")
    hear(desk, "a", state=EngineState.ASLEEP)
    hear(desk, "b", running=3.0, waiting=0.0, kv_usage=0.31)
    desk.ask_many("m", 10)
    assert loads(desk) == {"a": 0, "b": 8}
    hear(desk, "a", running=0.0)
    assert loads(desk) == {"a": 2, "b": 8}


def test_inputs_that_wait_in_an_engine_are_not_counted_as_requests() -> None:
    desk = hosts("a", "b")
    hear(desk, "a", waiting=500.0, waiting_unit="inputs")
    hear(desk, "b", running=1.0)
    assert where(desk, desk.ask("m")) == "a"


def test_what_engines_say_keeps_nobody_waiting() -> None:
    desk = hosts("a", "b", ceiling=2)
    for host in "ab":
        hear(desk, host, running=900.0)
    desk.ask_many("m", 5)
    assert loads(desk) == {"a": 2, "b": 2}
    assert len(desk.waiting) == 1


def test_whoever_waits_starts_wherever_a_slot_comes_free() -> None:
    desk = hosts("a", "b", ceiling=1)
    desk.ask_many("m", 2)
    keyed = desk.ask("m", affinity=key_of(desk, "a"))
    desk.finish(at(desk, "b")[0])
    assert where(desk, keyed) == "b"


def test_an_endpoint_that_cannot_serve_is_passed_over() -> None:
    desk = hosts("a", "b", "c")
    hear(desk, "a", state=EngineState.LOADING)
    desk.ask_many("m", 2)
    desk.finish(at(desk, "b")[0], FAILED)
    desk.ask_many("m", 5)
    assert loads(desk) == {"a": 0, "b": 0, "c": 6}


REFUSALS = [Outcome.CONGESTION, Outcome.LOADING, Outcome.CONFIGURATION]


def refuse(desk: Desk, host: str, outcome: Outcome, *, times: int = 1, **more) -> None:
    for _ in range(times):
        for _ in range(20):
            if not at(desk, host):
                desk.ask("m", **more)
        desk.finish(at(desk, host)[0], Ending(outcome))


def rests(desk: Desk, host: str) -> float:
    """How long it rests from now on."""
    return max(0.0, desk.core.states[f"m@{host}"].rest.until - desk.now)


@pytest.mark.parametrize("outcome", REFUSALS)
def test_an_endpoint_that_only_refuses_is_not_taken_for_the_least_loaded(outcome: Outcome) -> None:
    desk = hosts("a", "b")
    refuse(desk, "a", outcome, times=3)
    desk.ask_many("m", 20)
    assert loads(desk) == {"a": 0, "b": 8}, "not even when all others are full"


def test_it_is_tried_again_soon_and_then_ever_later() -> None:
    desk = hosts("a", "b")
    refuse(desk, "a", Outcome.LOADING, times=2)
    pauses = []
    for _ in range(6):
        refuse(desk, "a", Outcome.LOADING)
        pauses.append(rests(desk, "a"))
        desk.now = desk.core.states["m@a"].rest.until
        desk.see(desk.core.tick(desk.now))
    for pause, usual in zip(pauses, [1, 2, 4, 8, 10, 10], strict=True):
        assert 0.75 * usual <= pause <= 1.25 * usual


def test_an_answer_ends_its_rests() -> None:
    desk = hosts("a", "b")
    refuse(desk, "a", Outcome.CONGESTION, times=3)
    desk.now += 20
    desk.see(desk.core.tick(desk.now))
    for _ in range(20):
        if not at(desk, "a"):
            desk.ask("m")
    desk.finish(at(desk, "a")[0])
    refuse(desk, "a", Outcome.CONGESTION, times=2)
    assert rests(desk, "a") == 0


def test_a_burst_of_refusals_is_one_reason_to_rest() -> None:
    desk = hosts("a", "b")
    desk.ask_many("m", 16)
    for grant in at(desk, "a"):
        desk.finish(grant, Ending(Outcome.CONGESTION))
    assert rests(desk, "a") <= 1.25


def test_nobody_waits_for_the_rest_of_the_last_one_that_is_left() -> None:
    desk = hosts("a", "b")
    desk.ask_many("m", 2)
    desk.finish(at(desk, "b")[0], FAILED)
    desk.finish(at(desk, "a")[0])
    refuse(desk, "a", Outcome.CONFIGURATION, times=5)
    assert where(desk, desk.ask("m")) == "a"


def test_a_key_whose_endpoint_only_refuses_goes_to_its_next_one() -> None:
    desk = hosts("a", "b")
    key = key_of(desk, "a")
    refuse(desk, "a", Outcome.CONFIGURATION, times=3, affinity=key)
    assert where(desk, desk.ask("m", affinity=key)) == "b"


def test_the_first_request_after_a_cooldown_tries_the_endpoint_that_was_away() -> None:
    desk = hosts("a", "b")
    desk.ask_many("m", 2)
    desk.finish(at(desk, "a")[0], FAILED)
    desk.now += 5.0
    assert where(desk, desk.ask("m")) == "a"
    desk.ask_many("m", 3)
    assert loads(desk) == {"a": 1, "b": 4}


def test_a_gpu_that_is_full_of_others_is_passed_over() -> None:
    desk = Desk(
        admission(
            endpoint("m", host="a", group="a", interactive=False),
            endpoint("m", host="b", group="b", interactive=False),
            endpoint("chat", host="a", group="a", ceiling=2, floor=2),
            budgets={"a": 3},
        )
    )
    desk.ask_many("m", 5)
    assert loads(desk)["a"] == 1, "chat's floor stays free"


def test_chat_goes_to_a_gpu_on_which_bulk_work_waits_as_to_any_other() -> None:
    desk = Desk(
        admission(
            endpoint("m", host="a", group="a"),
            endpoint("m", host="b", group="b"),
            endpoint("embed", host="a", group="a", interactive=False),
            budgets={"a": 4, "b": 4},
        )
    )
    desk.ask_many("embed", 9)
    key = key_of(desk, "a")
    assert where(desk, desk.ask("m", affinity=key)) == "a"
    assert desk.core.queues["embed", BEST_EFFORT].head is not None


def test_bulk_work_waits_its_turn_on_a_gpu_on_which_other_bulk_work_waits() -> None:
    desk = Desk(
        admission(
            endpoint("m", host="a", group="a", interactive=False),
            endpoint("m", host="b", group="b", interactive=False, ceiling=1),
            endpoint("embed", host="a", group="a", interactive=False),
            budgets={"a": 2},
        )
    )
    desk.ask_many("embed", 4)
    desk.ask_many("m", 3)
    assert loads(desk) == {"a": 0, "b": 1, "embed@a": 2}
    desk.finish(desk.of("embed")[0])
    assert loads(desk) == {"a": 1, "b": 1, "embed@a": 1}, "its floor goes first"


def test_flex_work_is_spread_too_and_leaves_every_floor_free() -> None:
    desk = hosts("a", "b", ceiling=3)
    desk.ask_many("m", 6, BEST_EFFORT)
    assert loads(desk) == {"a": 2, "b": 2}
    desk.ask_many("m", 2)
    assert desk.of("m", INTERACTIVE)
    assert loads(desk) == {"a": 3, "b": 3}


# -- affinity --------------------------------------------------------------------------------------


def test_requests_with_one_key_run_at_one_endpoint() -> None:
    desk = hosts(*"abcd")
    for key in KEYS[:40]:
        seen = set()
        for _ in range(3):
            seen.add(where(desk, desk.ask("m", affinity=key)))
            desk.finish(desk.running[0])
        assert len(seen) == 1


def test_a_hot_key_spills_to_its_next_choices_and_moves_no_other_key() -> None:
    desk = hosts(*"abcd")
    hot = key_of(desk, "b")
    pool = desk.core.states["m@b"].pool
    first, second = (s.endpoint.id.removeprefix("m@") for s in pool.rendezvous.order(hot)[:2])
    desk.ask_many("m", 6, affinity=hot)
    assert loads(desk) == {**dict.fromkeys("abcd", 0), first: 4, second: 2}
    others = [key for key in KEYS[:60] if key != hot]
    for key in others:
        ticket = desk.ask("m", affinity=key)
        assert where(desk, ticket) == pool.rendezvous.order(key)[0].endpoint.id[-1]
        desk.finish(desk.running[-1])
    for grant in list(desk.running):
        desk.finish(grant)
    assert where(desk, desk.ask("m", affinity=hot)) == first, "it comes back"


def test_a_hot_key_takes_all_there_is_before_it_waits() -> None:
    desk = hosts("a", "b", ceiling=4)
    desk.ask_many("m", 9, affinity="agent-7")
    assert loads(desk) == {"a": 4, "b": 4}
    assert len(desk.waiting) == 1


def test_under_a_hot_key_no_endpoint_gets_more_than_its_limit_and_others_keep_theirs() -> None:
    desk = hosts(*"abcd")
    hot = "agent-7"
    kept = 0
    tickets = []
    for number in range(24):
        key = hot if number % 5 < 3 else KEYS[number]
        ticket = desk.ask("m", affinity=key)
        if key != hot:
            order = desk.core.states["m@a"].pool.rendezvous.order(key)
            tickets.append(ticket)
            kept += where(desk, ticket) == order[0].endpoint.id[-1]
    assert kept == len(tickets)
    assert max(loads(desk).values()) <= 8


def test_a_key_whose_endpoint_is_full_goes_to_its_next_one_and_comes_back() -> None:
    desk = hosts("a", "b", "c", ceiling=2)
    key, *others = (key_of(desk, "a", KEYS[:n]) for n in (0, 100, 200))
    for other in others:
        desk.ask("m", affinity=other)
    assert loads(desk) == {"a": 2, "b": 0, "c": 0}
    next_one = desk.core.states["m@a"].pool.rendezvous.order(key)[1].endpoint.id[-1]
    assert where(desk, desk.ask("m", affinity=key)) == next_one
    desk.finish(at(desk, "a")[0])
    assert where(desk, desk.ask("m", affinity=key)) == "a"


def test_a_key_whose_endpoint_is_away_goes_to_its_next_one_and_comes_back() -> None:
    desk = hosts("a", "b", "c")
    key = key_of(desk, "a")
    next_one = desk.core.states["m@a"].pool.rendezvous.order(key)[1].endpoint.id[-1]
    desk.ask("m", affinity=key)
    desk.finish(at(desk, "a")[0], FAILED)
    assert where(desk, desk.ask("m", affinity=key)) == next_one
    desk.now += 5.0
    probe = desk.ask("m", affinity=key)
    assert where(desk, probe) == "a"
    assert where(desk, desk.ask("m", affinity=key)) == next_one, "it is being tried"
    desk.finish(at(desk, "a")[0])
    assert where(desk, desk.ask("m", affinity=key)) == "a"


def test_a_request_that_failed_where_its_key_belongs_goes_elsewhere() -> None:
    desk = hosts("a", "b", "c")
    key = key_of(desk, "a")
    ticket = desk.ask("m", affinity=key, avoid=frozenset({"m@a"}))
    assert where(desk, ticket) != "a"


def test_a_model_with_one_endpoint_has_no_use_for_keys() -> None:
    desk = hosts("a")
    assert where(desk, desk.ask("m", affinity="agent-7")) == "a"
    assert desk.core.states["m@a"].pool is None


def test_a_key_is_forgotten_when_its_requests_have_ended() -> None:
    desk = hosts("a", "b")
    desk.ask_many("m", 3, affinity="agent-7")
    for grant in list(desk.running):
        desk.finish(grant)
    assert not any(state.keys for state in desk.core.states.values())


# -- endpoints that come and go --------------------------------------------------------------------


def test_a_host_that_is_added_gets_the_next_requests() -> None:
    desk = hosts("a", ceiling=4)
    desk.ask_many("m", 3, affinity="agent-7")
    desk.see(desk.core.add(endpoint("m", host="b", group="b", ceiling=4), 0.0))
    desk.ask_many("m", 3)
    assert loads(desk) == {"a": 3, "b": 3}
    for grant in list(desk.running):
        desk.finish(grant)
    assert not any(state.keys for state in desk.core.states.values())


def test_a_host_that_drains_gets_none_and_one_that_is_left_over_all() -> None:
    desk = hosts("a", "b", "c", ceiling=4)
    hear(desk, "b", running=1.0)
    desk.see(desk.core.drain("m@b", 0.0))
    desk.ask_many("m", 4)
    assert loads(desk) == {"a": 2, "b": 0, "c": 2}
    desk.see(desk.core.drain("m@c", 0.0))
    desk.ask("m", affinity="agent-7")
    assert loads(desk) == {"a": 3, "b": 0, "c": 2}
    desk.now += 20.0
    desk.see(desk.core.add(endpoint("m", host="b", group="b", ceiling=4), desk.now))
    desk.ask_many("m", 3)
    assert loads(desk) == {"a": 3, "b": 3, "c": 2}


def test_a_limit_that_moves_moves_the_share_that_is_free() -> None:
    desk = hosts("a", "b", ceiling=8)
    desk.ask_many("m", 4)
    desk.see(desk.core.set_bounds("m@a", 1, 16, 0.0))
    desk.ask_many("m", 8)
    assert loads(desk) == {"a": 8, "b": 4}
