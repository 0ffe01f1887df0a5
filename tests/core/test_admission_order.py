"""Who is next, and that nobody is overtaken for ever."""

from __future__ import annotations

from itertools import pairwise

import pytest

from support.deployments import BEST_EFFORT, INTERACTIVE, Desk, admission, endpoint


def order_of_starts(desk: Desk) -> list:
    """Let everything finish, oldest first, and return the tickets in the order they started."""
    started = {}  # ordered
    while desk.running:
        started |= dict.fromkeys(grant.ticket for grant in desk.running)
        desk.now += 1
        desk.finish(desk.running[0])
    return list(started)


def test_one_class_is_served_in_order_of_arrival() -> None:
    desk = Desk(admission(endpoint("chat", ceiling=2)))
    tickets = desk.ask_many("chat", 20)
    assert order_of_starts(desk) == tickets


def test_models_of_one_group_are_served_in_order_of_arrival() -> None:
    desk = Desk(admission(endpoint("chat"), endpoint("lite"), budgets={"gpu": 2}))
    asked = []
    for step in range(10):
        desk.now += 1
        asked.append(desk.ask("chat" if step % 3 else "lite"))
    desk.finish(desk.of("lite")[0])
    desk.finish(desk.of("chat")[0])
    assert [g.ticket for g in desk.running] == [asked[3], asked[2]], "each its floor first"


def test_without_floors_in_the_way_the_earliest_of_two_chat_models_is_next() -> None:
    desk = Desk(admission(endpoint("chat"), endpoint("lite"), budgets={"gpu": 4}))
    for _ in range(2):
        desk.ask("chat")
        desk.ask("lite")
    desk.now = 1.0
    late = desk.ask("lite")
    desk.now = 2.0
    later = [desk.ask("chat"), desk.ask("chat")]
    desk.finish(desk.of("chat")[0])
    desk.finish(desk.of("chat")[0])
    assert late in [g.ticket for g in desk.running]
    assert later[1] not in [g.ticket for g in desk.running]


def test_batch_work_is_overtaken_only_so_often() -> None:
    desk = Desk(admission(endpoint("chat", ceiling=1), max_overtakes=1))
    running = desk.ask("chat")
    first = desk.ask("chat")
    batch = desk.ask("chat", BEST_EFFORT)
    second, third = desk.ask("chat"), desk.ask("chat")
    assert order_of_starts(desk) == [running, first, batch, second, third]


@pytest.mark.parametrize("overtakes", [1, 2, 5])
def test_flex_work_on_a_busy_chat_model_gets_every_nth_start(overtakes: int) -> None:
    desk = Desk(admission(endpoint("chat", floor=2, ceiling=2), max_overtakes=overtakes))
    desk.ask_many("chat", 100)
    desk.ask_many("chat", 5, BEST_EFFORT)
    classes = [ticket.service_class for ticket in order_of_starts(desk)]
    at = [n for n, service_class in enumerate(classes) if service_class is BEST_EFFORT]
    assert len(at) == 5
    # With two slots, the chat that runs beside it may end first and be replaced once.
    assert all(overtakes < later - earlier <= overtakes + 2 for earlier, later in pairwise(at))


def test_many_that_were_overtaken_do_not_together_overtake_chat() -> None:
    models = [f"chat-{n}" for n in range(12)]
    desk = Desk(admission(*map(endpoint, models), budgets={"gpu": 32}, max_overtakes=3))
    for model in models:
        desk.ask_many(model, 100)
    for model in models:
        desk.ask_many(model, 100, BEST_EFFORT)
    classes = [ticket.service_class for ticket in order_of_starts(desk)[100:400]]
    assert 45 <= classes.count(BEST_EFFORT) <= 75, "no more than every fourth"


def test_whoever_gives_up_does_not_set_back_those_behind_it() -> None:
    desk = Desk(admission(endpoint("chat", ceiling=1), max_overtakes=2))
    desk.ask_many("chat", 9)
    first, second = desk.ask_many("chat", 2, BEST_EFFORT)
    desk.finish(desk.running[0])
    desk.finish(desk.running[0])
    desk.give_up(first)
    desk.finish(desk.running[0])
    assert [g.ticket for g in desk.running] == [second]


def test_a_floor_goes_before_whoever_has_the_turn() -> None:
    desk = Desk(
        admission(endpoint("chat", floor=2), endpoint("lite"), budgets={"gpu": 4}, max_overtakes=1)
    )
    desk.ask_many("chat", 8)
    desk.ask("chat", BEST_EFFORT)
    desk.finish(desk.of("chat")[0])  # another starts, so the flex request has the turn
    lite = desk.ask("lite")
    assert lite in [g.ticket for g in desk.running]


def two_chat_models(budget: int, *, ceiling: int = 32) -> Desk:
    return Desk(
        admission(
            endpoint("chat", floor=2, ceiling=ceiling),
            endpoint("lite"),
            budgets={"gpu": budget},
            max_overtakes=1,
        )
    )


def test_chat_keeps_its_floor_while_flex_work_on_the_same_model_has_the_turn() -> None:
    desk = two_chat_models(5)
    desk.ask_many("chat", 2)
    desk.ask_many("lite", 9)
    desk.ask("chat", BEST_EFFORT, weight=2)
    desk.finish(desk.of("lite")[0])  # another starts, so the flex request has the turn
    desk.ask_many("chat", 2)
    desk.finish(desk.of("chat")[0])
    assert desk.counts("chat", "lite") == (2, 3)


def test_flex_work_whose_model_has_no_more_than_its_floor_starts_although_others_press() -> None:
    desk = two_chat_models(4, ceiling=2)
    desk.ask_many("lite", 2)
    desk.ask_many("chat", 20)
    flex = desk.ask("chat", BEST_EFFORT)
    desk.ask_many("lite", 20)
    for _ in range(4):
        desk.finish(desk.of("chat")[0])
        desk.finish(desk.of("lite")[0])
    assert flex not in desk.waiting


# -- heavy requests ------------------------------------------------------------------------------


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
    models = [ticket.model for ticket in order_of_starts(desk)[1:]]
    assert models == ["embed", "rerank", "chat"]


def test_flex_work_that_waited_longest_goes_first_where_everybody_waits_for_others() -> None:
    desk = everybody_waits_for_anothers_floor(flex=True)
    models = [ticket.model for ticket in order_of_starts(desk)[1:]]
    assert models == ["chat", "embed", "rerank", "chat"]


def test_a_heavy_head_that_leaves_lets_the_light_ones_behind_it_start() -> None:
    desk = Desk(admission(endpoint("embed", interactive=False, ceiling=4)))
    desk.ask_many("embed", 2)
    heavy = desk.ask("embed", weight=4)
    light = desk.ask_many("embed", 2)
    assert len(desk.running) == 2
    desk.give_up(heavy)
    assert [g.ticket for g in desk.running[2:]] == light


def test_whoever_is_cancelled_in_the_queue_leaves_the_others_in_order() -> None:
    desk = Desk(admission(endpoint("chat", ceiling=1)))
    tickets = desk.ask_many("chat", 6)
    desk.give_up(tickets[3])
    assert order_of_starts(desk) == [t for t in tickets if t is not tickets[3]]


def test_flex_work_that_gives_up_frees_the_chat_that_it_held_back() -> None:
    desk = Desk(admission(endpoint("chat", ceiling=1), max_overtakes=1))
    desk.ask_many("chat", 4)
    flex = desk.ask("chat", BEST_EFFORT)
    desk.finish(desk.running[0])
    desk.give_up(flex)
    desk.finish(desk.running[0])
    assert len(desk.running) == 1
