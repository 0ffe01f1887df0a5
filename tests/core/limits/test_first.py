"""First tokens that wait for room inside the engine, and those that are late for another reason."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from core.limits.harness import Fifo, Request, World
from forebay.core.limits.first import Begins, FirstTokens
from forebay.core.limits.knee import Knee
from forebay.core.model import Timing, TimingKind

STEP_S = 0.02


def first(seconds: float, size: float = 300.0) -> Timing:
    return Timing(TimingKind.FIRST_TOKEN, seconds, size)


def learned(step_s: float = STEP_S, seconds: float = 0.04) -> FirstTokens:
    """First tokens that come after two steps."""
    tokens = FirstTokens()
    tokens.see_step(step_s)
    for n in range(8):
        assert tokens.wait(first(seconds), started_at=float(n)) == 0.0
    return tokens


# -- what a wait is --------------------------------------------------------------------------------


def test_nothing_is_said_before_a_step_is_known() -> None:
    assert FirstTokens().wait(first(100.0), started_at=0.0) is None


def test_a_wait_is_what_a_first_token_takes_beyond_the_usual() -> None:
    assert learned().wait(first(1.04), started_at=9.0) == pytest.approx(1.0)


def test_a_machine_that_gets_slower_makes_no_first_token_wait() -> None:
    tokens = learned()
    for _ in range(200):
        tokens.see_step(5 * STEP_S)
    assert tokens.wait(first(5 * 0.04), started_at=9.0) == 0.0


def test_a_long_prompt_is_measured_by_its_like() -> None:
    assert learned().wait(first(0.4, size=30_000.0), started_at=9.0) == 0.0


def test_what_was_late_from_the_beginning_tells_of_no_room() -> None:
    tokens = FirstTokens()
    tokens.see_step(STEP_S)
    waits = {tokens.wait(first(4.0), started_at=float(n)) for n in range(20)}
    assert waits == {None}
    begins = Begins(8)
    for _ in range(200):
        begins.add(None)
    assert not begins.are_enough


def test_who_is_overtaken_did_not_wait_for_room() -> None:
    tokens = learned()
    assert tokens.wait(first(0.04), started_at=9.5) == 0.0
    assert tokens.wait(first(1.04), started_at=9.0) == 0.0


def test_who_starts_in_the_same_step_overtakes_nobody() -> None:
    tokens = learned()
    tokens.wait(first(1.04), started_at=9.01)
    assert tokens.wait(first(1.05), started_at=9.0) > 0.9


def test_a_clock_that_jumps_back_does_not_make_everybody_overtaken() -> None:
    tokens = learned()
    tokens.turn_back(0.0)
    assert tokens.wait(first(1.04), started_at=0.5) > 0.9


def test_a_few_that_wait_are_chance_and_many_are_not() -> None:
    begins = Begins(16)
    for _ in range(50):
        begins.add(0.0)
    for _ in range(3):
        begins.add(1.0)
    assert begins.are_enough
    assert not begins.wait
    begins.add(1.0)
    assert begins.wait


def test_what_waited_long_ago_is_forgotten() -> None:
    begins = Begins(8)
    for _ in range(4):
        begins.add(1.0)
    for _ in range(61):
        begins.add(0.0)
    assert not begins.wait
    assert begins.wait_s == 0.0


# -- what the law makes of it ----------------------------------------------------------------------


@dataclass
class Streaming(Fifo):
    """Streams `size` tokens a request; some prompts are in no cache, and take longer.

    Args:
        missed: the part of the prompts that takes 25 steps, not two.
        step_s: how long one takes.
    """

    missed: float = 0.0
    step_s: float = STEP_S
    rng: random.Random = field(default_factory=lambda: random.Random(1))

    def serve(self, request: Request, inflight: int) -> None:
        steps = 25 if self.rng.random() < self.missed else 2
        self.service_s = lambda size: self.step_s * (steps + size)
        super().serve(request, inflight)
        first_at = request.served_at + steps * self.step_s
        request.readings = [
            (first_at, first(first_at - request.started_at)),
            (request.ended_at, Timing(TimingKind.OUTPUT_TOKEN, self.step_s, 1.0)),
        ]


def world(
    law: Knee, *, capacity: int = 32, missed: float = 0.0, tokens: float = 50.0
) -> tuple[World, Streaming]:
    rng = random.Random(1)
    server = Streaming(capacity, lambda size: size, missed=missed)
    size = lambda: tokens * rng.lognormvariate(0, 0.5)  # noqa: E731 - a shape, not a function
    return World(law, server, backlog=200, size=size), server


def waiting(world: World, since: float) -> float:
    """How many wait inside the server for each that it serves."""
    settled = [r for r in world.done if r.ended_at > since]
    waited_s = sum(r.served_at - r.started_at for r in settled)
    return waited_s / sum(r.ended_at - r.served_at for r in settled)


def test_hardly_any_prompt_waits_and_no_work_is_lost() -> None:
    found, _ = world(Knee(1, 128))
    best, _ = world(Knee(32, 32))
    found.run(200.0)
    best.run(200.0)
    assert waiting(found, 50.0) <= 0.1
    assert any(reason == "cut: first tokens wait" for _, reason in found.cuts)
    done, most = (sum(r.ended_at > 50.0 for r in each.done) for each in (found, best))
    assert done >= 0.98 * most


@pytest.mark.parametrize("missed", [0.03, 0.1, 0.3, 0.6])
def test_prompts_that_no_cache_knows_do_not_bring_it_down(missed: float) -> None:
    found, _ = world(Knee(1, 128), missed=missed)
    found.run(300.0)
    assert min(found.limits_since(100.0)) >= 29


def test_a_cache_that_knows_no_prompt_any_more_does_not_hold_the_limit_down_for_ever() -> None:
    found, server = world(Knee(1, 128))
    found.run(60.0)
    server.missed = 1.0
    found.run(300.0)
    assert min(found.limits_since(300.0)) >= 29


def test_an_endpoint_that_was_away_may_come_back_with_other_first_tokens() -> None:
    tokens = learned()
    assert tokens.wait(first(1.04), started_at=9.0) == pytest.approx(1.0)
    tokens.forget()
    assert tokens.wait(first(1.04), started_at=10.0) is None


@pytest.mark.parametrize("left", [4, 8, 16])
def test_a_server_that_takes_less_now_gets_less(left: int) -> None:
    """Though many first tokens are late at first, and for some time."""
    found, server = world(Knee(1, 128))
    found.run(100.0)
    server.capacity = left
    found.run(500.0)
    assert waiting(found, 200.0) <= 0.1


def test_a_machine_that_gets_slower_keeps_its_limit_where_no_prompt_waits() -> None:
    found, server = world(Knee(1, 24))
    found.run(60.0)
    server.step_s *= 3
    found.run(240.0)
    assert found.limits_since(60.0) == [24]


def test_a_start_above_what_is_served_does_not_pass_for_room() -> None:
    found, _ = world(Knee(16, 64), capacity=4)
    found.run(200.0)
    assert "cut: does less do as much?" in [reason for _, reason in found.cuts]


def test_a_floor_holds_whoever_waits() -> None:
    found, server = world(Knee(16, 24), capacity=32)
    found.run(60.0)
    server.capacity = 8
    found.run(200.0)
    assert min(found.limits_since(60.0)) == 16
    assert found.law.decision.limit == 16


def test_what_waited_is_approached_by_half() -> None:
    found, _ = world(Knee(1, 128), capacity=48)
    found.run(300.0)
    moves = [(d.limit, d.reason) for _, d in found.moves]
    eased = [n for n, (_, reason) in enumerate(moves) if reason == "cut: first tokens wait"]
    assert eased
    assert max(limit for limit, _ in moves[eased[0] + 1 :]) < moves[eased[0] - 1][0]
