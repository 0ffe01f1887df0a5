"""A large request takes as many slots as it is large, wherever that is configured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.model import Ticket
from support.deployments import BEST_EFFORT, Desk, admission, endpoint


def embedder(**more):
    return endpoint("embed", interactive=False, **more)


@pytest.mark.parametrize(
    ("tokens", "slots"), [(0, 1), (1, 1), (100, 1), (101, 2), (1000, 10), (1001, 11)]
)
def test_every_so_many_tokens_take_a_slot(tokens, slots) -> None:
    desk = Desk(admission(embedder(tokens_per_slot=100)))
    desk.ask("embed", size_tokens=tokens)
    assert [g.weight for g in desk.running] == [slots]


def test_size_does_not_count_where_no_measure_is_configured() -> None:
    desk = Desk(admission(embedder(slot_weight=2)))
    desk.ask("embed", size_tokens=10**9)
    assert [g.weight for g in desk.running] == [2]


def test_a_small_request_takes_the_slots_of_any_request() -> None:
    desk = Desk(admission(embedder(slot_weight=3, tokens_per_slot=100)))
    for tokens in (1, 300, 301):
        desk.ask("embed", size_tokens=tokens)
    assert [g.weight for g in desk.running] == [3, 3, 4]


def test_a_weight_that_is_named_counts_whatever_the_size() -> None:
    desk = Desk(admission(embedder(slot_weight=3, tokens_per_slot=100)))
    desk.ask("embed", weight=1, size_tokens=900)
    assert [g.weight for g in desk.running] == [1]


def test_many_texts_count_as_many_small_requests_under_the_joint_budget() -> None:
    desk = Desk(
        admission(endpoint("chat", floor=2), embedder(tokens_per_slot=10), budgets={"gpu": 6})
    )
    desk.ask("embed", size_tokens=30)
    desk.ask_many("embed", 5, size_tokens=10)
    assert [g.weight for g in desk.running] == [3, 1]
    desk.ask_many("chat", 2)
    assert desk.counts("chat") == (2,)


def test_a_request_larger_than_the_budget_still_runs_alone() -> None:
    desk = Desk(admission(endpoint("chat"), embedder(tokens_per_slot=10), budgets={"gpu": 4}))
    desk.ask("embed", size_tokens=10**6)
    small = desk.ask("embed", size_tokens=1)
    assert [g.weight for g in desk.running] == [3]
    desk.finish(desk.running[0])
    assert [g.ticket for g in desk.running] == [small]


def test_each_endpoint_counts_by_its_own_measure() -> None:
    """One queue, two GPUs: what is large for the one is small for the other."""
    desk = Desk(
        admission(
            embedder(host="small", group="a", ceiling=4, tokens_per_slot=10),
            embedder(host="large", group="b", ceiling=2, tokens_per_slot=1000),
            budgets={"a": 4, "b": 2},
        )
    )
    desk.ask_many("embed", 3, size_tokens=40)
    assert sorted((g.endpoint.id, g.weight) for g in desk.running) == [
        ("embed@large", 1),
        ("embed@large", 1),
        ("embed@small", 4),
    ]


def test_a_small_request_behind_a_large_one_finds_the_endpoint_that_had_no_room_for_that() -> None:
    desk = Desk(
        admission(
            embedder(host="a", group="a", ceiling=2, tokens_per_slot=10),
            embedder(host="b", group="b", ceiling=3, tokens_per_slot=10),
        )
    )
    desk.ask_many("embed", 2, weight=2)
    large, small = desk.ask("embed", size_tokens=20), desk.ask("embed", size_tokens=1)
    assert desk.waiting == [large, small]
    desk.finish(next(g for g in desk.running if g.endpoint.id == "embed@a"))
    assert [(g.ticket, g.endpoint.id) for g in desk.running[1:]] == [
        (large, "embed@a"),
        (small, "embed@b"),
    ]


sizes = st.integers(0, 5000)


@given(
    budget=st.integers(2, 12),
    measures=st.tuples(*[st.one_of(st.none(), st.integers(1, 400))] * 2),
    slot_weights=st.tuples(*[st.integers(1, 3)] * 2),
    asked=st.lists(
        st.tuples(st.sampled_from(["chat", "embed"]), st.booleans(), sizes), max_size=25
    ),
    ends=st.randoms(use_true_random=False),
)
def test_whatever_the_sizes_the_budget_holds_in_slots_and_everybody_is_served(
    budget, measures, slot_weights, asked, ends
) -> None:
    chat = endpoint("chat", slot_weight=slot_weights[0], tokens_per_slot=measures[0])
    embed = embedder(slot_weight=slot_weights[1], tokens_per_slot=measures[1])
    desk = Desk(admission(chat, embed, budgets={"gpu": budget}))
    for model, flex, size in asked:
        desk.ask(model, BEST_EFFORT if flex else None, size_tokens=size)
    served, chat_state = 0, desk.core.states[chat.id]
    while desk.running:
        room = desk.running[0].member.room
        assert sum(g.weight for g in desk.running) == room.inflight <= budget
        for grant in desk.running:
            leaves_a_floor = grant.member is not chat_state.native and grant.endpoint == chat
            most = min(room.most(grant.member), 31 if leaves_a_floor else 32)
            asks_for = grant.endpoint.slots_for(grant.ticket)
            assert grant.weight == max(1, min(asks_for, most))
        desk.finish(ends.choice(desk.running))
        served += 1
    assert (served, desk.waiting) == (len(asked), [])


@given(tokens=sizes, per_slot=st.integers(1, 400), slot_weight=st.integers(1, 9))
def test_slots_are_the_fewest_that_hold_all_tokens(tokens, per_slot, slot_weight) -> None:
    one = embedder(slot_weight=slot_weight, tokens_per_slot=per_slot)
    slots = one.slots_for(Ticket("embed", BEST_EFFORT, 0.0, size_tokens=tokens))
    assert slots >= slot_weight
    assert slots * per_slot >= tokens
    assert slots == slot_weight or (slots - 1) * per_slot < tokens
