"""Who is next, and that nobody is overtaken for ever."""

from __future__ import annotations

from itertools import pairwise

import pytest

from support.deployments import BEST_EFFORT, Desk, admission, endpoint


def test_one_class_is_served_in_order_of_arrival() -> None:
    desk = Desk(admission(endpoint("chat", ceiling=2)))
    tickets = desk.ask_many("chat", 20)
    assert desk.order_of_starts() == tickets


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
    assert desk.order_of_starts() == [running, first, batch, second, third]


@pytest.mark.parametrize("overtakes", [1, 2, 5])
def test_flex_work_on_a_busy_chat_model_gets_every_nth_start(overtakes: int) -> None:
    desk = Desk(admission(endpoint("chat", floor=2, ceiling=2), max_overtakes=overtakes))
    desk.ask_many("chat", 100)
    desk.ask_many("chat", 5, BEST_EFFORT)
    classes = [ticket.service_class for ticket in desk.order_of_starts()]
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
    classes = [ticket.service_class for ticket in desk.order_of_starts()[100:400]]
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


def test_whoever_is_cancelled_in_the_queue_leaves_the_others_in_order() -> None:
    desk = Desk(admission(endpoint("chat", ceiling=1)))
    tickets = desk.ask_many("chat", 6)
    desk.give_up(tickets[3])
    assert desk.order_of_starts() == [t for t in tickets if t is not tickets[3]]


def test_flex_work_that_gives_up_frees_the_chat_that_it_held_back() -> None:
    desk = Desk(admission(endpoint("chat", ceiling=1), max_overtakes=1))
    desk.ask_many("chat", 4)
    flex = desk.ask("chat", BEST_EFFORT)
    desk.finish(desk.running[0])
    desk.give_up(flex)
    desk.finish(desk.running[0])
    assert len(desk.running) == 1
