"""One model on several endpoints: the host is chosen when a slot is free."""

from __future__ import annotations

from forebay.core.breaker import BreakerSettings
from forebay.core.model import Ending, EngineState, Outcome, Reason, Signal
from support.deployments import BEST_EFFORT, Desk, admission, endpoint

FAILED = Ending(Outcome.FAILURE)


def replicas(*ceilings: int, budgets: dict[str, int] | None = None, one_gpu: bool = False) -> Desk:
    made = [
        endpoint("chat", host=host, group="gpu" if one_gpu else f"gpu-{host}", ceiling=ceiling)
        for host, ceiling in zip("abcdef", ceilings, strict=False)
    ]
    return Desk(admission(*made, budgets=budgets, breaker=BreakerSettings(jitter=0.0)))


def by_host(desk: Desk) -> dict[str, int]:
    return {s.endpoint.id[-1]: s.inflight for s in desk.core.states.values()}


def on(desk: Desk, host: str) -> list:
    return [g for g in desk.running if g.endpoint.id == f"chat@{host}"]


def break_(desk: Desk, host: str) -> None:
    for grant in on(desk, host)[:3]:
        desk.finish(grant, FAILED)


def test_requests_go_where_the_smallest_share_of_the_limit_is_taken() -> None:
    desk = replicas(4, 8)
    desk.ask_many("chat", 6)
    assert by_host(desk) == {"a": 2, "b": 4}


def test_nobody_waits_behind_a_busy_host_while_another_has_a_slot() -> None:
    desk = replicas(2, 2)
    desk.ask_many("chat", 8)
    for _ in range(4):
        desk.finish(on(desk, "b")[0])
    assert by_host(desk) == {"a": 2, "b": 2}
    assert not desk.waiting


def test_a_host_whose_gpu_is_full_is_passed_over() -> None:
    desk = Desk(
        admission(
            endpoint("chat", host="a", group="gpu-a"),
            endpoint("chat", host="b", group="gpu-b"),
            endpoint("embed", host="a", group="gpu-a", interactive=False),
            budgets={"gpu-a": 3, "gpu-b": 3},
        )
    )
    desk.ask_many("embed", 5)
    desk.ask_many("chat", 6)
    assert desk.counts("embed") == (2,)
    assert len(on(desk, "a")) == 1
    assert len(on(desk, "b")) == 3


def test_a_host_that_asks_to_be_left_alone_holds_back_only_itself() -> None:
    desk = replicas(2, 2)
    desk.ask_many("chat", 6)
    desk.finish(on(desk, "a")[0], Ending(Outcome.CONGESTION, retry_after_s=60.0))
    assert by_host(desk) == {"a": 1, "b": 2}
    desk.finish(on(desk, "b")[0])
    assert by_host(desk) == {"a": 1, "b": 2}


def test_requests_go_on_waiting_when_one_of_two_hosts_breaks() -> None:
    desk = replicas(3, 3)
    desk.ask_many("chat", 12)
    break_(desk, "a")
    assert not desk.refused
    assert len(on(desk, "b")) == 3
    desk.finish(on(desk, "b")[0])
    assert len(on(desk, "b")) == 3


def test_when_the_last_host_breaks_whoever_waits_is_refused() -> None:
    desk = replicas(3, 3)
    desk.ask_many("chat", 20)
    for host in "ab":
        break_(desk, host)
    assert not desk.waiting
    assert {r.reason for r in desk.refused} == {Reason.UNAVAILABLE}


def test_a_host_is_tried_again_after_its_cooldown_although_nothing_happens_elsewhere() -> None:
    """Whoever waits for the other, busy host is not left waiting for it to finish something."""
    desk = replicas(3, 1)
    desk.ask_many("chat", 12)
    break_(desk, "a")
    while on(desk, "a"):
        desk.finish(on(desk, "a")[0], FAILED)
    waiting = len(desk.waiting)
    assert waiting > 0
    assert desk.core.wake_at(desk.now) == 5.0
    desk.now = 5.0
    desk.see(desk.core.tick(desk.now))
    assert [g.pass_.probe for g in on(desk, "a")] == [True]
    assert len(desk.waiting) == waiting - 1
    assert not desk.refused


def test_a_probe_that_gets_no_answer_is_followed_by_another_in_time() -> None:
    desk = replicas(3, 1)
    desk.ask_many("chat", 12)
    break_(desk, "a")
    while on(desk, "a"):
        desk.finish(on(desk, "a")[0], FAILED)
    seen = []
    while len(on(desk, "a")) < 3:
        desk.now = desk.core.wake_at(desk.now)
        desk.see(desk.core.tick(desk.now))
        seen.append((desk.now, len(on(desk, "a"))))
    # Probe at 5 s, given up at 20 s, cooldown 10 s; probe at 30 s, which gets twice as long as
    # long as nothing has ever been answered, given up at 60 s, cooldown 20 s.
    assert seen == [(5.0, 1), (20.0, 1), (30.0, 2), (60.0, 2), (80.0, 3)]


def test_a_model_that_sleeps_on_one_host_is_served_by_the_other() -> None:
    desk = replicas(2, 2)
    signal = Signal("vllm", at=0.0, state=EngineState.ASLEEP)
    desk.see(desk.core.signal("chat@a", signal, 0.0))
    desk.ask_many("chat", 3)
    assert by_host(desk) == {"a": 0, "b": 2}
    assert len(desk.waiting) == 1
    assert desk.core.wake_at(0.0) is None, "time does not wake an engine"


def test_a_broken_host_and_one_without_room_serve_nobody_together() -> None:
    desk = Desk(
        admission(
            endpoint("chat", host="a", group="gpu-a", floor=2),
            endpoint("chat", host="b", group="gpu-b"),
            budgets={"gpu-a": 2},
            breaker=BreakerSettings(jitter=0.0),
        )
    )
    desk.ask_many("chat", 6)
    break_(desk, "b")
    desk.ask("chat", BEST_EFFORT)
    assert [r.reason for r in desk.refused] == [Reason.UNAVAILABLE]


def test_a_broken_chat_host_keeps_its_floor_and_broken_bulk_work_lends_its_own() -> None:
    desk = Desk(
        admission(
            endpoint("chat", floor=2),
            endpoint("embed", interactive=False, floor=2),
            budgets={"gpu": 6},
        )
    )
    desk.ask_many("embed", 6)
    assert desk.counts("embed") == (4,)
    desk.finish(desk.running[0], Ending(Outcome.CONGESTION, retry_after_s=60.0))
    for grant in list(desk.running):
        desk.finish(grant)
    desk.ask_many("chat", 8)
    assert desk.counts("chat", "embed") == (6, 0)
    assert len(desk.waiting) == 4


def test_heavy_requests_of_one_model_find_the_host_where_they_fit() -> None:
    desk = replicas(4, 4)
    desk.ask_many("chat", 3, weight=2)
    desk.ask("chat", weight=4)
    light = desk.ask("chat", weight=1)
    assert sorted(by_host(desk).values()) == [2, 4]
    for grant in list(desk.running):
        desk.finish(grant)
    assert light in [g.ticket for g in desk.running]


def test_whoever_stood_behind_a_heavy_request_starts_on_another_host_as_soon_as_it_has_left() -> (
    None
):
    desk = replicas(4, 4)
    desk.ask_many("chat", 6)
    heavy, light = desk.ask("chat", weight=4), desk.ask("chat")
    for grant in on(desk, "a"):
        desk.finish(grant)
    assert [g.ticket for g in on(desk, "a")] == [heavy]
    assert light in [g.ticket for g in on(desk, "b")]


def test_requests_that_are_too_late_do_not_upset_the_line() -> None:
    """Two hosts on one GPU stand in one line for the same queue, and leave it separately."""
    desk = replicas(1, 1, one_gpu=True, budgets={"gpu": 4})
    desk.ask_many("chat", 2)
    for step in range(50):
        desk.now += 1.0
        desk.ask("chat", deadline=desk.now + 0.5 + step % 3)
        desk.ask("chat")
        desk.finish(desk.running[step % 2])
    while desk.running:
        desk.finish(desk.running[0])
    assert not desk.waiting
