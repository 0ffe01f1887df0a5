"""Requests that take several slots: they gather room, and nobody waits for ever."""

from __future__ import annotations

from support.deployments import BEST_EFFORT, INTERACTIVE, Desk, admission, endpoint


def test_a_request_heavier_than_the_limit_runs_alone() -> None:
    desk = Desk(admission(endpoint("embed", interactive=False, ceiling=4)))
    desk.ask("embed", weight=9)
    desk.ask("embed")
    assert [g.weight for g in desk.running] == [4]
    desk.finish(desk.running[0])
    assert [g.weight for g in desk.running] == [1]


def test_a_request_heavier_than_the_budget_takes_all_but_the_reserve() -> None:
    desk = Desk(
        admission(endpoint("chat"), endpoint("embed", interactive=False), budgets={"gpu": 4})
    )
    desk.ask("embed", weight=9)
    desk.ask("embed")
    assert [g.weight for g in desk.running] == [3]
    desk.ask("chat")
    assert desk.counts("chat", "embed") == (1, 1)


def test_an_endpoints_slot_weight_holds_for_requests_that_name_none() -> None:
    desk = Desk(admission(endpoint("embed", interactive=False, ceiling=4, slot_weight=2)))
    desk.ask_many("embed", 3)
    assert [g.weight for g in desk.running] == [2, 2]
    desk.finish(desk.running[0])
    desk.ask("embed", weight=1)
    assert [g.weight for g in desk.running] == [2, 2]


def test_a_heavy_request_gathers_room_and_light_ones_wait_behind_it() -> None:
    desk = Desk(
        admission(
            endpoint("embed", interactive=False),
            endpoint("rerank", interactive=False),
            budgets={"gpu": 4},
            max_overtakes=3,
        )
    )
    desk.ask_many("rerank", 50)
    heavy = desk.ask("embed", weight=4)
    starts = 0
    while heavy not in [g.ticket for g in desk.running]:
        before = len(desk.waiting)
        desk.finish(desk.running[0])
        starts += before - len(desk.waiting)
    assert starts <= 4, "three overtook it, and then it gathered room"
    assert desk.counts("embed", "rerank") == (1, 0)


def test_heavy_chat_is_not_overtaken_for_ever_by_light_chat_of_another_model() -> None:
    desk = Desk(admission(endpoint("chat"), endpoint("lite"), budgets={"gpu": 4}, max_overtakes=3))
    desk.ask_many("lite", 40)
    heavy = desk.ask("chat", weight=3)
    for _ in range(6):
        desk.finish(desk.of("lite")[0])
    assert heavy in [g.ticket for g in desk.running]
    assert desk.of("chat")[0].weight == 3


def test_heavy_flex_work_starts_beside_steady_chat() -> None:
    """Chat never goes below its floor, so a request of all that is left must start beside it."""
    desk = Desk(admission(endpoint("chat", floor=2, ceiling=8), max_overtakes=2))
    desk.ask_many("chat", 60)
    heavy = desk.ask("chat", BEST_EFFORT, weight=8)
    for _ in range(20):
        desk.finish(desk.of("chat", INTERACTIVE)[0])
        if heavy not in desk.waiting:
            break
    assert [g.weight for g in desk.of("chat", BEST_EFFORT)] == [6]
    assert len(desk.of("chat", INTERACTIVE)) == 2


def test_what_a_heavy_request_lacks_to_its_floor_is_not_counted_twice() -> None:
    desk = Desk(
        admission(
            endpoint("chat", floor=2), endpoint("embed", interactive=False), budgets={"gpu": 5}
        )
    )
    desk.ask("embed")
    desk.ask("chat", weight=4)
    assert desk.counts("chat", "embed") == (1, 1)


def test_a_heavy_request_has_no_claim_on_anothers_floor_for_a_part_that_is_its_due() -> None:
    desk = Desk(
        admission(
            endpoint("chat"),
            endpoint("lite"),
            endpoint("embed", interactive=False),
            budgets={"gpu": 4},
        )
    )
    desk.ask_many("lite", 3)
    desk.ask("chat", weight=2)
    desk.ask("embed")
    desk.finish(desk.running[0])
    assert desk.counts("chat", "lite", "embed") == (0, 2, 1)
    desk.finish(desk.running[0])
    assert desk.counts("chat", "lite", "embed") == (1, 1, 1)


def test_flex_work_starts_when_the_chat_that_it_let_pass_gives_up() -> None:
    desk = Desk(admission(endpoint("chat", ceiling=4), max_overtakes=100))
    desk.ask("chat")
    desk.ask_many("chat", 9, BEST_EFFORT)
    heavy = desk.ask("chat", weight=2)
    desk.finish(desk.of("chat", BEST_EFFORT)[0])
    assert len(desk.running) == 3
    desk.give_up(heavy)
    assert len(desk.running) == 4


def test_flex_work_leaves_the_limit_to_heavy_chat_that_waits_for_it() -> None:
    desk = Desk(admission(endpoint("chat", ceiling=4), max_overtakes=100))
    desk.ask("chat")
    desk.ask_many("chat", 9, BEST_EFFORT)
    heavy = desk.ask("chat", weight=2)
    for _ in range(2):
        desk.finish(desk.of("chat", BEST_EFFORT)[0])
    assert heavy in [g.ticket for g in desk.running]


def test_heavy_bulk_work_gathers_room_beside_busy_chat() -> None:
    desk = Desk(
        admission(
            endpoint("chat"),
            endpoint("embed", interactive=False),
            budgets={"gpu": 4},
            max_overtakes=2,
        )
    )
    desk.ask_many("chat", 30)
    desk.ask("embed", weight=3)
    seen = []
    for _ in range(6):
        desk.finish(desk.of("chat")[0])
        seen.append(desk.counts("chat", "embed"))
    assert seen == [(3, 0), (3, 0), (3, 0), (2, 0), (1, 1), (1, 1)]


def test_bulk_work_above_its_floor_leaves_room_to_heavy_chat_that_waits_for_it() -> None:
    desk = Desk(
        admission(
            endpoint("chat"),
            endpoint("embed", interactive=False),
            budgets={"gpu": 4},
            max_overtakes=100,
        )
    )
    desk.ask("chat")
    desk.ask_many("embed", 9)
    desk.ask("chat", weight=2)
    seen = []
    for _ in range(2):
        desk.finish(desk.of("embed")[0])
        seen.append(desk.counts("chat", "embed"))
    assert seen == [(1, 2), (2, 1)]


def test_a_heavy_request_does_not_take_what_a_running_peer_lacks_to_its_floor() -> None:
    desk = Desk(
        admission(
            endpoint("chat"),
            endpoint("embed", interactive=False, floor=2),
            endpoint("rerank", interactive=False),
            budgets={"gpu": 5},
        )
    )
    desk.ask_many("chat", 2)
    desk.ask("embed")
    desk.ask("rerank", weight=2)
    assert desk.counts("chat", "embed", "rerank") == (2, 1, 0)
    desk.ask("embed")
    assert desk.counts("chat", "embed", "rerank") == (2, 2, 0)


def everybody_waits_for_anothers_floor(*, flex: bool) -> Desk:
    desk = Desk(
        admission(
            endpoint("chat"),
            endpoint("embed", interactive=False, floor=2),
            endpoint("rerank", interactive=False, floor=2),
            budgets={"gpu": 6},
            max_overtakes=100,
        )
    )
    desk.ask_many("chat", 6)
    if flex:
        desk.ask("chat", BEST_EFFORT)
    for model in ("embed", "rerank", "chat"):
        desk.ask(model, weight=6)
    while desk.counts("chat")[0] > 1:
        desk.finish(desk.running[0])
    assert len(desk.running) == 1
    return desk


def test_heavy_requests_that_wait_for_each_others_floor_all_run() -> None:
    desk = everybody_waits_for_anothers_floor(flex=False)
    models = [ticket.model for ticket in desk.order_of_starts()[1:]]
    assert models == ["embed", "rerank", "chat"]


def test_flex_work_that_waited_longest_goes_first_where_everybody_waits_for_others() -> None:
    desk = everybody_waits_for_anothers_floor(flex=True)
    models = [ticket.model for ticket in desk.order_of_starts()[1:]]
    assert models == ["chat", "embed", "rerank", "chat"]


def test_a_heavy_head_that_leaves_lets_the_light_ones_behind_it_start() -> None:
    desk = Desk(admission(endpoint("embed", interactive=False, ceiling=4)))
    desk.ask_many("embed", 2)
    heavy = desk.ask("embed", weight=4)
    light = desk.ask_many("embed", 2)
    assert len(desk.running) == 2
    desk.give_up(heavy)
    assert [g.ticket for g in desk.running[2:]] == light
