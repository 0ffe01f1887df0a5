"""Whoever waits, it can be told for what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.binding import Binding, binding
from forebay.core.model import Ending, EngineState, Outcome, Signal
from forebay.core.protection import ProtectionSettings
from support.deployments import BEST_EFFORT, INTERACTIVE, Desk, admission, endpoint

if TYPE_CHECKING:
    from forebay.core.grant import Grant


def desk(*, budget: int | None = 6, chat: int = 2, embed: int = 1, **more) -> Desk:
    members = (
        endpoint("chat", floor=chat, ceiling=4),
        endpoint("embed", interactive=False, floor=embed, ceiling=4),
    )
    return Desk(admission(*members, budgets={"gpu": budget} if budget else None, **more))


def waits_for(of: Desk, model: str, service_class=None) -> Binding | None:
    (state,) = (s for s in of.core.states.values() if s.endpoint.model == model)
    wanted = service_class or state.endpoint.service_class
    (member,) = (m for m in state.members if m.queue.service_class is wanted)
    return binding(member, of.now)


def test_nothing_binds_where_nobody_waits() -> None:
    on = desk()
    on.ask("embed")
    assert waits_for(on, "embed") is waits_for(on, "chat") is None


def test_the_endpoints_own_limit() -> None:
    on = desk(budget=None)
    on.ask_many("embed", 5)
    assert waits_for(on, "embed") is Binding.LIMIT


def test_a_heavy_request_waits_for_the_limit_though_a_light_one_would_fit() -> None:
    chat = endpoint("chat", ceiling=4, tokens_per_slot=10)
    on = Desk(admission(chat))
    on.ask_many("chat", 2)
    on.ask("chat", size_tokens=30)
    assert waits_for(on, "chat") is Binding.LIMIT


def test_the_floors_that_are_kept_free() -> None:
    on = desk(budget=5)
    on.ask_many("embed", 4)
    assert on.counts("embed") == (3,)
    assert waits_for(on, "embed") is Binding.RESERVE


def test_the_joint_budget() -> None:
    on = desk(budget=5)
    on.ask_many("chat", 4)
    on.ask_many("embed", 2)
    assert on.counts("chat", "embed") == (4, 1)
    assert waits_for(on, "embed") is Binding.BUDGET


def test_background_work_on_chats_endpoint_waits_for_the_slots_that_chat_keeps() -> None:
    on = desk(budget=None)
    on.ask_many("chat", 3, BEST_EFFORT)
    assert waits_for(on, "chat", BEST_EFFORT) is Binding.RESERVE
    assert waits_for(on, "chat", INTERACTIVE) is None


def test_protections_share_and_its_measuring() -> None:
    on = desk(budget=8, protection=ProtectionSettings())
    on.ask("chat")
    on.ask_many("embed", 3)
    assert on.counts("chat", "embed") == (1, 1)
    assert waits_for(on, "embed") is Binding.SHARE
    guard = next(iter(on.core.rooms.values())).guard
    guard._steering.pauses.began_at = on.now
    assert waits_for(on, "embed") is Binding.MEASURING


def test_an_endpoint_that_is_away() -> None:
    on = desk()
    on.ask_many("embed", 5)
    on.finish(on.of("embed")[0], Ending(Outcome.CONGESTION, retry_after_s=9.0))
    assert waits_for(on, "embed") is Binding.REST
    state = on.core.states["embed@a"]
    state.hear(Signal("vllm", on.now, EngineState.ASLEEP), on.now)
    assert waits_for(on, "embed") is Binding.ENGINE


def test_a_breaker_and_the_ramp_after_it() -> None:
    hosts = [endpoint("chat", group=f"gpu-{host}", ceiling=4, host=host) for host in "ab"]
    on = Desk(admission(*hosts))
    on.ask_many("chat", 20)

    def of(host: str) -> list[Grant]:
        return [grant for grant in on.running if grant.endpoint.id == f"chat@{host}"]

    def bound() -> list[Binding | None]:
        return [binding(state.native, on.now) for state in on.core.states.values()]

    assert bound() == [Binding.LIMIT, Binding.LIMIT]
    for grant in of("a"):
        on.finish(grant, Ending(Outcome.FAILURE))
    assert bound() == [Binding.BREAKER, Binding.LIMIT]
    on.now += 10
    on.see(on.core.tick(on.now))
    on.finish(of("a")[-1])
    on.ask_many("chat", 3)
    assert bound() == [Binding.RAMP, Binding.LIMIT]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ask", "finish", "later"]),
            st.sampled_from(["chat", "embed"]),
            st.sampled_from([INTERACTIVE, BEST_EFFORT]),
        ),
        max_size=40,
    )
)
def test_something_binds_exactly_where_a_request_waits(steps) -> None:
    on = desk(budget=5, protection=ProtectionSettings())
    for what, model, service_class in steps:
        if what == "ask":
            on.ask(model, service_class)
        elif what == "finish" and (running := on.of(model, service_class)):
            on.finish(running[0])
        else:
            on.now += 0.3
            on.see(on.core.tick(on.now))
        for state in on.core.states.values():
            for member in state.members:
                assert (binding(member, on.now) is None) is (member.head is None)


def test_what_there_is_room_for_waits_while_chat_lacks_some() -> None:
    chat = endpoint("chat", ceiling=4, tokens_per_slot=10)
    on = Desk(admission(chat, endpoint("embed", interactive=False, ceiling=4), budgets={"gpu": 4}))
    on.ask_many("embed", 2)
    on.ask("chat", size_tokens=30)
    on.ask("embed")
    assert on.counts("chat", "embed") == (0, 2)
    assert waits_for(on, "chat") is Binding.BUDGET
    assert waits_for(on, "embed") is Binding.ORDER
