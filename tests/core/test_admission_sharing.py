"""What chat and bulk work get of one GPU's budget."""

from __future__ import annotations

import pytest

from forebay.core.model import Reason
from support.deployments import BEST_EFFORT, INTERACTIVE, Desk, admission, endpoint


def shared(budget: int, *, chat: int, embed: int, **more) -> Desk:
    return Desk(
        admission(
            endpoint("chat", floor=chat),
            endpoint("embed", interactive=False, floor=embed),
            budgets={"gpu": budget},
            **more,
        )
    )


def shared_by_three(budget: int, *, chat: int, embed: int, rerank: int) -> Desk:
    return Desk(
        admission(
            endpoint("chat", floor=chat),
            endpoint("embed", interactive=False, floor=embed),
            endpoint("rerank", interactive=False, floor=rerank),
            budgets={"gpu": budget},
        )
    )


def test_a_storm_with_chat_idle_takes_all_but_the_chat_floor() -> None:
    desk = shared(6, chat=2, embed=1)
    desk.ask_many("embed", 50)
    assert desk.counts("chat", "embed") == (0, 4)


def test_the_first_chats_never_wait_and_the_next_get_slots_as_the_storm_drains() -> None:
    desk = shared(6, chat=2, embed=1)
    desk.ask_many("embed", 50)
    desk.ask("chat")
    desk.ask("chat")
    assert desk.counts("chat", "embed") == (2, 4)
    desk.ask_many("chat", 6)
    assert desk.counts("chat", "embed") == (2, 4), "nothing running is revoked"
    seen = []
    for _ in range(5):
        desk.finish(desk.of("embed")[0])
        seen.append(desk.counts("chat", "embed"))
    assert seen == [(3, 3), (4, 2), (5, 1), (5, 1), (5, 1)]


def test_bulk_work_comes_back_when_chat_stops() -> None:
    desk = shared(6, chat=2, embed=1)
    desk.ask_many("embed", 50)
    chats = desk.ask_many("chat", 8)
    for _ in range(3):
        desk.finish(desk.of("embed")[0])
    for ticket in chats[5:]:
        desk.give_up(ticket)
    for grant in desk.of("chat"):
        desk.finish(grant)
    assert desk.counts("chat", "embed") == (0, 4)


def test_two_kinds_of_bulk_work_both_yield_to_their_floors() -> None:
    desk = shared_by_three(6, chat=2, embed=1, rerank=1)
    for _ in range(25):
        desk.ask("embed")
        desk.ask("rerank")
    assert desk.counts("chat", "embed", "rerank") == (0, 2, 2)
    desk.ask_many("chat", 8)
    for model in ("embed", "rerank", "embed", "rerank"):
        desk.finish(desk.of(model)[0])
    assert desk.counts("chat", "embed", "rerank") == (4, 1, 1)


def test_bulk_work_is_squeezed_to_its_floor_but_always_progresses() -> None:
    desk = shared(4, chat=2, embed=1)
    desk.ask_many("embed", 1000)
    desk.ask_many("chat", 10)
    done = 0
    for step in range(400):
        oldest = desk.running[0]
        done += oldest.ticket.model == "embed"
        desk.finish(oldest)
        if oldest.ticket.model == "chat":
            desk.ask("chat")
        chat, embed = desk.counts("chat", "embed")
        assert chat >= 2
        assert chat + embed == 4
        if step > 4:
            assert embed == 1
    assert done >= 90


def test_a_best_effort_floor_is_lent_out_while_nobody_wants_it() -> None:
    desk = shared(6, chat=2, embed=2)
    desk.ask_many("chat", 8)
    assert desk.counts("chat", "embed") == (6, 0)
    desk.ask_many("embed", 3)
    for grant in desk.of("chat")[:3]:
        desk.finish(grant)
    assert desk.counts("chat", "embed") == (4, 2), "chat asks for more, and its floor is met"


def test_a_lent_floor_comes_back_slot_by_slot_even_where_two_wait_for_theirs() -> None:
    desk = shared_by_three(4, chat=2, embed=1, rerank=1)
    desk.ask_many("chat", 6)
    desk.ask("embed")
    desk.ask("rerank")
    desk.finish(desk.of("chat")[0])
    assert desk.counts("chat", "embed", "rerank") == (3, 1, 0)
    desk.finish(desk.of("chat")[0])
    assert desk.counts("chat", "embed", "rerank") == (2, 1, 1)


def test_work_that_is_running_below_its_floor_keeps_the_rest_of_it() -> None:
    desk = shared(4, chat=1, embed=2)
    desk.ask("embed")
    desk.ask_many("chat", 5)
    assert desk.counts("chat", "embed") == (2, 1)
    desk.ask("embed")
    assert desk.counts("chat", "embed") == (2, 2)


def test_chat_that_waits_for_its_own_limit_blocks_nobody() -> None:
    desk = Desk(
        admission(
            endpoint("chat", floor=1, ceiling=2),
            endpoint("embed", interactive=False),
            budgets={"gpu": 6},
        )
    )
    desk.ask_many("chat", 5)
    desk.ask_many("embed", 9)
    assert desk.counts("chat", "embed") == (2, 4)


def test_without_a_budget_only_limits_bind() -> None:
    desk = Desk(
        admission(
            endpoint("chat", floor=2, ceiling=3),
            endpoint("embed", interactive=False, ceiling=5),
        )
    )
    desk.ask_many("embed", 9)
    desk.ask_many("chat", 9)
    assert desk.counts("chat", "embed") == (3, 5)


def test_a_budget_binds_only_its_own_group() -> None:
    desk = Desk(
        admission(
            endpoint("chat", group="a", ceiling=8),
            endpoint("embed", group="b", interactive=False, ceiling=8),
            budgets={"a": 3},
        )
    )
    desk.ask_many("embed", 9)
    desk.ask_many("chat", 9)
    assert desk.counts("chat", "embed") == (3, 8)


def test_best_effort_peers_share_what_is_left_by_floor() -> None:
    desk = shared_by_three(10, chat=2, embed=3, rerank=1)
    desk.ask_many("embed", 400)
    desk.ask_many("rerank", 400)
    done = {"embed": 0, "rerank": 0}
    for step in range(400):
        oldest = desk.running[0]
        desk.finish(oldest)
        if step >= 40:  # the embed storm came first
            done[oldest.ticket.model] += 1
    assert done["embed"] / done["rerank"] == pytest.approx(3, rel=0.1)


def test_time_without_demand_earns_no_share_of_what_follows() -> None:
    desk = shared_by_three(6, chat=1, embed=1, rerank=1)
    desk.ask("rerank")
    desk.finish(desk.of("rerank")[0])
    desk.ask_many("embed", 300)
    for _ in range(200):
        desk.finish(desk.running[0])
    desk.ask_many("rerank", 100)
    for _ in range(20):
        desk.finish(desk.running[0])
    assert 2 <= desk.counts("embed")[0] <= 3


def test_what_runs_below_the_floor_costs_no_share() -> None:
    """Chat squeezes both to their floors, and one turns its slot over ten times as fast."""
    desk = shared_by_three(6, chat=1, embed=1, rerank=1)
    desk.ask_many("chat", 100)
    desk.ask_many("embed", 300)
    desk.ask_many("rerank", 300)
    while desk.counts("embed", "rerank") != (1, 1):
        desk.finish(desk.of("chat")[0])
    for step in range(100):
        desk.finish(desk.of("embed")[0])
        if step % 10 == 0:
            desk.finish(desk.of("rerank")[0])
    assert desk.counts("chat", "embed", "rerank") == (4, 1, 1)
    for ticket in [t for t in desk.waiting if t.model == "chat"]:
        desk.give_up(ticket)
    for grant in desk.of("chat"):
        desk.finish(grant)
    for _ in range(10):
        desk.finish(desk.running[0])
    assert 2 <= desk.counts("embed")[0] <= 3, "neither repays what it got as its due"


@pytest.mark.parametrize("budget", [1, 7])
def test_floors_that_add_up_to_more_than_the_budget_are_refused(budget: int) -> None:
    with pytest.raises(ValueError, match=f"'gpu': floors total 8, budget is {budget}"):
        shared(budget, chat=4, embed=4)


def test_an_endpoint_cannot_be_there_twice() -> None:
    with pytest.raises(ValueError, match="'chat@a' is there twice"):
        admission(endpoint("chat"), endpoint("chat"))


# -- requests that ask in the other class --------------------------------------------------------


def test_flex_work_on_a_chat_model_cannot_take_the_endpoints_reserve() -> None:
    desk = Desk(admission(endpoint("chat", floor=2, ceiling=5)))
    desk.ask_many("chat", 9, BEST_EFFORT)
    assert len(desk.running) == 3
    desk.ask("chat")
    desk.ask("chat")
    assert len(desk.of("chat", INTERACTIVE)) == 2


def test_flex_work_on_a_chat_model_cannot_take_the_groups_reserve() -> None:
    desk = shared(5, chat=2, embed=1)
    desk.ask_many("chat", 9, BEST_EFFORT)
    assert len(desk.running) == 3
    desk.ask("chat")
    desk.ask("chat")
    assert len(desk.of("chat", INTERACTIVE)) == 2


def test_a_reserve_that_is_in_use_is_not_kept_twice() -> None:
    desk = Desk(admission(endpoint("chat", floor=2, ceiling=5)))
    desk.ask("chat")
    desk.ask_many("chat", 9, BEST_EFFORT)
    assert len(desk.of("chat", BEST_EFFORT)) == 3
    assert len(desk.running) == 4


def test_a_floor_that_is_the_whole_limit_leaves_flex_work_one_slot() -> None:
    desk = Desk(admission(endpoint("chat", floor=2, ceiling=2)))
    desk.ask_many("chat", 3, BEST_EFFORT)
    assert len(desk.running) == 1


def test_interactive_requests_come_first_where_both_share_the_limit() -> None:
    desk = Desk(admission(endpoint("chat", floor=1, ceiling=4)))
    desk.ask_many("chat", 6, BEST_EFFORT)
    chats = desk.ask_many("chat", 3)
    assert len(desk.of("chat", BEST_EFFORT)) == 3
    for _ in range(2):
        desk.finish(desk.of("chat", BEST_EFFORT)[0])
    assert [g.ticket for g in desk.of("chat", INTERACTIVE)] == chats


def test_an_urgent_embedding_comes_before_those_that_wait() -> None:
    desk = shared(4, chat=1, embed=1)
    desk.ask_many("embed", 9)
    urgent = desk.ask("embed", INTERACTIVE)
    desk.finish(desk.of("embed")[0])
    assert urgent in [g.ticket for g in desk.running]


def test_urgent_embeddings_do_not_take_the_chat_floor() -> None:
    desk = shared(4, chat=2, embed=1)
    desk.ask_many("embed", 9, INTERACTIVE)
    assert desk.counts("embed") == (2,)


def test_a_class_that_the_reserved_floors_leave_nothing_is_refused_at_once() -> None:
    desk = Desk(admission(endpoint("chat", floor=2), endpoint("lite", floor=1), budgets={"gpu": 3}))
    desk.ask("chat", BEST_EFFORT)
    assert [r.reason for r in desk.refused] == [Reason.NO_ROOM]


def test_urgent_embeddings_leave_the_others_their_floor() -> None:
    desk = shared(4, chat=1, embed=1)
    desk.ask("chat")
    desk.ask_many("embed", 9, INTERACTIVE)
    desk.ask_many("embed", 9)
    for _ in range(5):
        desk.finish(desk.of("embed", INTERACTIVE)[0])
        assert len(desk.of("embed", BEST_EFFORT)) == 1
        assert len(desk.of("embed", INTERACTIVE)) == 2
