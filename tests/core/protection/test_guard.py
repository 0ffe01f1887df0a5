"""The gate, as admission asks it."""

from __future__ import annotations

import pytest

from forebay.core.model import Ending, EngineState, Outcome, Signal, Timing, TimingKind
from forebay.core.observer import Observer
from forebay.core.protection import ProtectionSettings
from forebay.errors import ConfigError
from support.deployments import BEST_EFFORT, INTERACTIVE, Desk, admission, endpoint

FIRST, OUTPUT = TimingKind.FIRST_TOKEN, TimingKind.OUTPUT_TOKEN


class Told(Observer):
    def __init__(self) -> None:
        self.moves = []

    def share_changed(self, guard, now) -> None:  # noqa: ARG002 - the observer's signature
        self.moves.append((guard.share, guard.reason))


def desk_of(*endpoints, observer=None, budgets=None, **settings) -> Desk:
    made = endpoints or (endpoint("chat"), endpoint("embed", interactive=False))
    protection = ProtectionSettings(**settings)
    told = observer or Told()
    core = admission(*made, budgets=budgets, protection=protection, observer=told)
    return Desk(core)


def guard_of(desk: Desk):
    return next(iter(desk.core.rooms.values())).guard


def tick(desk: Desk, seconds: float) -> None:
    desk.now += seconds
    desk.see(desk.core.tick(desk.now))


def wake(desk: Desk) -> None:
    """Let time pass to where the core asked to be woken."""
    desk.now = desk.core.wake_at(desk.now)
    desk.see(desk.core.tick(desk.now))


def first_token(desk: Desk, seconds: float, size: float = 100) -> None:
    (grant,) = desk.of("chat", INTERACTIVE)
    desk.now += seconds
    desk.see(desk.core.timing(grant, Timing(FIRST, seconds, size), desk.now))


def chat_once(desk: Desk, seconds: float = 0.1, pause_s: float = 0.05) -> None:
    """One request of chat, one at a time, with its first token after `seconds`."""
    desk.ask("chat", INTERACTIVE)
    first_token(desk, seconds)
    (grant,) = desk.of("chat", INTERACTIVE)
    desk.finish(grant)
    tick(desk, pause_s)


def turn_over(desk: Desk, model: str = "embed") -> None:
    """Whatever runs of the bulk ends, and as much is asked for anew."""
    for grant in desk.of(model, BEST_EFFORT):
        desk.finish(grant)
        desk.ask(model, BEST_EFFORT)


def known(desk: Desk) -> None:
    """Let chat be measured alone."""
    for _ in range(200):
        chat_once(desk)


def test_before_chat_ever_came_bulk_work_is_free() -> None:
    desk = desk_of()
    desk.ask_many("embed", 20)
    assert desk.counts("embed") == (20,)


def test_chat_that_has_not_been_measured_meets_no_more_than_the_floors() -> None:
    desk = desk_of(endpoint("chat"), endpoint("embed", interactive=False, floor=3))
    desk.ask("chat")
    desk.ask_many("embed", 20)
    assert desk.counts("embed") == (3,)
    assert guard_of(desk).state(desk.now) == "protecting"


def test_running_work_is_never_cancelled() -> None:
    desk = desk_of()
    desk.ask_many("embed", 20)
    desk.ask("chat")
    assert desk.counts("chat", "embed") == (1, 20)


def test_chat_itself_never_waits_for_the_guard() -> None:
    desk = desk_of()
    desk.ask_many("chat", 32)
    assert desk.counts("chat") == (32,)


def test_a_pause_ends_when_chat_stays_away() -> None:
    desk = desk_of()
    desk.ask("chat")
    desk.ask_many("embed", 3)
    first_token(desk, 0.1)  # beside bulk work, of which nothing is known: a pause begins
    guard = guard_of(desk)
    assert guard.measuring
    assert guard.state(desk.now) == "measuring"
    turn_over(desk)
    assert desk.counts("embed") == (0,)
    desk.finish(desk.of("chat")[0])
    wake(desk)
    assert not guard.measuring
    assert desk.counts("embed") != (0,)
    assert guard.state(desk.now) == "idle"


def test_a_pause_gives_up_although_chat_never_ends() -> None:
    desk = desk_of()
    desk.ask("chat")
    desk.ask_many("embed", 3)
    first_token(desk, 0.1)
    turn_over(desk)
    began_at = desk.now
    wake(desk)
    assert desk.now - began_at == pytest.approx(30)
    assert desk.counts("embed") == (1,)


def test_strict_floors_are_never_paused() -> None:
    desk = desk_of(min_duty=1.0)
    desk.ask("chat")
    desk.ask_many("embed", 3)
    for _ in range(100):
        chat_beside(desk, 0.1)
        assert desk.counts("embed") == (1,)


def chat_beside(desk: Desk, seconds: float) -> None:
    for grant in desk.of("chat", INTERACTIVE):
        desk.finish(grant)
    desk.ask("chat", INTERACTIVE)
    first_token(desk, seconds)
    turn_over(desk)


def test_chat_that_gets_slow_cuts_the_share_down_to_a_part_of_the_time() -> None:
    told = Told()
    desk = desk_of(observer=told)
    known(desk)
    desk.ask("chat")
    desk.ask_many("embed", 4)
    for _ in range(400):
        chat_beside(desk, 0.3 if desk.counts("embed") != (0,) else 0.1)
        tick(desk, 0.01)
    assert guard_of(desk).share == pytest.approx(0.2)
    assert told.moves[0][1].startswith("cut: first token 3.0")
    assert guard_of(desk).ratio > 1.25
    starts = sum(desk.counts("embed"))
    assert starts <= 1


def test_a_pause_between_pieces_ends_by_time() -> None:
    desk = desk_of()
    guard = guard_of(desk)
    guard._steering.share.value = 0.25
    known_chat = desk.ask("chat")
    assert known_chat not in desk.waiting
    first_token(desk, 0.1)
    desk.ask_many("embed", 2)
    assert desk.counts("embed") == (1,)
    tick(desk, 1.0)
    turn_over(desk)
    assert guard.state(desk.now) == "paused"
    began_at = desk.now
    wake(desk)
    assert desk.now - began_at == pytest.approx(3, abs=0.1)
    assert desk.counts("embed") == (1,)


def test_chat_that_bears_it_gets_more_beside_it() -> None:
    desk = desk_of()
    known(desk)
    desk.ask("chat")
    desk.ask_many("embed", 20)
    for _ in range(600):
        chat_beside(desk, 0.1)
        tick(desk, 0.01)
    assert guard_of(desk).share > 4
    assert guard_of(desk).reason.startswith(("grew: first token 1.0", "measured", "held"))


def test_slow_returns_bound_what_idle_time_lets_in() -> None:
    desk = desk_of()
    known(desk)
    for _ in range(20):
        tick(desk, 5.0)
        for grant in desk.of("embed"):
            desk.finish(grant)
        desk.ask_many("embed", 32 - len(desk.of("embed")) - len(desk.waiting))
        chat_once(desk, 0.1 * (1 + len(desk.of("embed")) / 8))
    tick(desk, 5.0)
    assert 1 <= len(desk.of("embed")) <= 10


def test_after_a_long_silence_everything_may_run() -> None:
    desk = desk_of()
    known(desk)
    guard = guard_of(desk)
    guard._steering.idle_share.value = 2.0
    tick(desk, 1.0)
    desk.ask_many("embed", 32)
    assert desk.counts("embed") == (2,)
    while desk.waiting:
        wake(desk)
    assert desk.counts("embed") == (32,)
    desk.ask("chat")
    assert guard._met == 0


def test_an_absolute_goal_needs_no_measuring() -> None:
    desk = desk_of(first_token_s=0.2, output_token_s=0.05)
    desk.ask("chat")
    desk.ask_many("embed", 4)
    for _ in range(200):
        chat_beside(desk, 0.5)
        tick(desk, 0.1)
        assert not guard_of(desk).measuring
    assert guard_of(desk).share == pytest.approx(0.2)


def test_a_co_tenant_that_slows_chat_is_not_blamed_on_bulk_work() -> None:
    told = Told()
    desk = desk_of(observer=told)
    known(desk)
    desk.ask("chat")
    desk.ask_many("embed", 4)
    for _ in range(3000):
        chat_beside(desk, 0.3)
        tick(desk, 0.02)
        if any("not the cause" in reason for _, reason in told.moves):
            break
    share, reason = told.moves[-1]
    assert "measured: best-effort work is not the cause: chat alone takes 3.0" in reason
    assert share == 1


def test_a_generation_on_chats_own_engine_is_held_too() -> None:
    desk = desk_of(endpoint("chat", floor=2))
    desk.ask("chat")
    desk.ask_many("chat", 5, BEST_EFFORT)
    assert len(desk.of("chat", BEST_EFFORT)) == 1
    for grant in list(desk.running):
        desk.finish(grant)
    assert len(desk.of("chat", BEST_EFFORT)) == 1  # chat may be about to come back
    for _ in range(10):  # idle, and longer and longer
        wake(desk)
    assert len(desk.of("chat", BEST_EFFORT)) > 1


def test_a_group_without_chat_has_no_guard() -> None:
    desk = desk_of(endpoint("embed", interactive=False))
    assert guard_of(desk) is None


def test_rooms_of_one_gpu_share_a_guard_and_add_their_floors_up() -> None:
    desk = desk_of(
        endpoint("chat"),
        endpoint("embed", interactive=False, floor=2),
        endpoint("batch", interactive=False, floor=3),
    )
    guards = {room.guard for room in desk.core.rooms.values()}
    assert len(guards) == 1
    assert guard_of(desk).share == 5
    assert repr(guard_of(desk)) == "<Guard gpu: share 5.00, 0 in flight>"


def test_readings_of_bulk_work_and_of_no_time_say_nothing() -> None:
    desk = desk_of()
    desk.ask("embed")
    desk.finish(desk.running[0], Ending(Outcome.OK, (Timing(TimingKind.WORK, 0.1, 10),)))
    desk.ask("chat")
    desk.finish(desk.running[0], Ending(Outcome.OK, (Timing(OUTPUT, 0.0, 1),)))
    assert guard_of(desk)._steering.pauses._total == 0


def test_answers_in_one_piece_are_judged_by_their_work() -> None:
    desk = desk_of()
    for _ in range(200):
        desk.ask("chat")
        desk.now += 0.2
        desk.finish(desk.running[0], Ending(Outcome.OK, (Timing(TimingKind.WORK, 0.2, 50),)))
    assert guard_of(desk)._awaiting == 0
    desk.ask_many("embed", 4)
    ratios = []
    for _ in range(100):
        desk.ask("chat")
        desk.now += 0.8
        grant = desk.of("chat")[0]
        slow = 0.8 if desk.counts("embed") != (0,) else 0.2
        desk.finish(grant, Ending(Outcome.OK, (Timing(TimingKind.WORK, slow, 50),)))
        turn_over(desk)
        ratios.append(guard_of(desk).ratio)
    assert max(filter(None, ratios)) > 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"target": 1.0}, "target is 1.0; it must be above 1"),
        ({"min_duty": 0.0}, "min_duty is 0.0; it must be above 0, and at most 1"),
        ({"first_token_s": -1.0}, "first_token_s is -1.0; give seconds above 0"),
        ({"output_token_s": float("inf")}, "output_token_s is inf"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, said) -> None:
    with pytest.raises(ConfigError, match=said):
        ProtectionSettings(**settings)


def test_who_asked_for_it_hears_nothing_by_default() -> None:
    assert Observer().share_changed(guard_of(desk_of()), 0.0) is None


def test_each_token_counts_as_the_first_one_does() -> None:
    desk = desk_of(output_token_s=0.02)
    desk.ask_many("embed", 2)
    for _ in range(40):
        desk.ask("chat")
        desk.now += 1.0
        (grant,) = desk.of("chat")
        desk.finish(grant, Ending(Outcome.OK, (Timing(OUTPUT, 0.1, 1),)))
        turn_over(desk)
    assert "output token 5.00 × its goal of 0.02 s" in guard_of(desk).reason
    assert guard_of(desk).share < 1
    assert not guard_of(desk).measuring


def test_what_waits_for_an_engine_that_sleeps_does_not_keep_chat_from_being_measured() -> None:
    here = endpoint("embed", interactive=False)
    there = endpoint("embed", host="b", group="other", ceiling=1, interactive=False)
    desk = desk_of(endpoint("chat"), here, there, min_duty=1.0)
    asleep = Signal("test", desk.now, state=EngineState.ASLEEP)
    desk.see(desk.core.signal(here.id, asleep, desk.now))
    desk.ask_many("embed", 3)  # one runs elsewhere, two wait
    for _ in range(20):
        chat_once(desk)
    assert guard_of(desk)._steering.known


def test_endpoints_of_one_gpu_have_one_share_of_all_their_floors() -> None:
    first, second = (endpoint(each, interactive=False, floor=2) for each in ("embed", "rank"))
    desk = desk_of(endpoint("chat"), first, second, budgets={"gpu": 8})
    assert guard_of(desk).share == 4
