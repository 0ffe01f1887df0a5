"""The laws against simulated servers, in virtual time; every number comes from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import exp, log, sqrt

import pytest

from core.limits.harness import Chat, Fifo, World
from forebay.core.limits.gradient_aimd import GradientAimd
from forebay.core.limits.knee import Knee
from forebay.core.limits.protocol import Limit  # noqa: TC001 - every law is held to it

SERVICE_S = 0.1

every_law = pytest.mark.parametrize("law", [GradientAimd, Knee])


def noise(rng: random.Random, cv: float) -> float:
    """Draw a factor with median 1 and the given coefficient of variation."""
    return exp(rng.gauss(0, sqrt(log(1 + cv * cv)))) if cv else 1.0


def p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * len(values))]


@every_law
@pytest.mark.parametrize("scrape_every_s", [None, 0.5, 5.0])
@pytest.mark.parametrize("floor", [1, 4, 16])
def test_a_server_that_never_refuses_is_found_full_by_its_latency(
    law: type[Limit], floor: int, scrape_every_s: float | None
) -> None:
    world = World(
        law(floor, 300),
        Fifo(16, lambda _: SERVICE_S),
        backlog=300,
        interactive_every_s=1.0,
        scrape_every_s=scrape_every_s,
    )
    world.run(120.0)
    limits = world.limits_since(30.0)
    settled = [request for request in world.done if request.ended_at > 30.0]
    queued_s = sum(r.served_at - r.started_at for r in settled) / len(settled)
    interactive_s = [r.ended_at - r.offered_at for r in settled if r.interactive]
    assert min(limits) >= 12
    assert max(limits) <= 26
    assert queued_s <= SERVICE_S
    assert len(settled) / 90 >= 0.9 * 160
    assert p95(interactive_s) <= 3 * SERVICE_S


@every_law
@pytest.mark.parametrize("knee", [4, 64, 256])
def test_other_knees_are_found_too(law: type[Limit], knee: int) -> None:
    world = World(law(2, 512), Fifo(knee, lambda _: SERVICE_S), backlog=600)
    world.run(40.0)
    limits = world.limits_since(30.0)
    assert min(limits) >= 0.75 * knee
    assert max(limits) <= max(1.6 * knee, knee + 4)


@every_law
@pytest.mark.parametrize("cv", [0.15, 0.3])
def test_noise_neither_pins_the_limit_nor_cuts_it(law: type[Limit], cv: float) -> None:
    rng = random.Random(7)
    server = Fifo(10**6, lambda _: SERVICE_S * noise(rng, cv))
    world = World(law(2, 8), server, backlog=300)
    world.run(900.0)
    assert world.limits_since(30.0) == [8]


@every_law
def test_the_knee_is_found_through_noise(law: type[Limit]) -> None:
    rng = random.Random(7)
    server = Fifo(16, lambda _: SERVICE_S * noise(rng, 0.3))
    world = World(law(4, 300), server, backlog=300)
    world.run(90.0)
    limits = world.limits_since(30.0)
    assert min(limits) >= 12
    assert max(limits) <= 2 * 16


@every_law
@pytest.mark.parametrize("cv", [0.0, 0.3])
def test_sizes_of_every_length_and_a_shift_of_their_mix_are_not_congestion(
    law: type[Limit], cv: float
) -> None:
    rng = random.Random(3)
    middle = log(100)
    world = World(
        law(2, 16),
        Fifo(1000, lambda size: (0.02 + 0.0004 * size) * noise(rng, cv)),
        backlog=300,
        size=lambda: exp(rng.gauss(middle, 1.0)),
    )
    world.run(120.0)
    assert world.law.decision.limit == 16
    middle = log(800)
    world.run(300.0)
    assert world.cuts == []


@every_law
def test_batches_of_one_input_and_of_many_are_each_judged_by_their_own(law: type[Limit]) -> None:
    rng = random.Random(3)
    sizes = [20.0]
    world = World(
        law(2, 16),
        Fifo(1000, lambda size: 0.005 * size),
        backlog=300,
        size=lambda: rng.choice(sizes),
    )
    world.run(60.0)
    sizes.append(640.0)
    world.run(240.0)
    assert world.cuts == []
    assert world.law.decision.limit == 16


@every_law
def test_long_answers_do_not_cut_and_a_full_chat_server_does(law: type[Limit]) -> None:
    rng = random.Random(1)
    lengths = [20.0]
    world = World(law(8, 64), Chat(knee=32), backlog=8, size=lambda: rng.choice(lengths))
    world.run(60.0)
    short = world.law.decision.limit
    assert short >= 8
    lengths.append(4000.0)
    world.run(180.0)
    assert min(world.limits_since(60.0)) >= short
    assert world.cuts == []
    world.backlog = 48
    world.run(600.0)
    assert world.cuts
    assert max(world.limits_since(500.0)) <= 42
    if law is GradientAimd:
        assert "first token" in world.cuts[0][1]


@dataclass
class Lagging(Fifo):
    """A server whose gauges tell what was `lag_s` ago."""

    lag_s: float = 0.0
    _told: list[tuple[float, int]] = field(default_factory=list)

    def waiting(self, now: float) -> int:
        self._told.append((now, super().waiting(now)))
        return next((n for at, n in reversed(self._told) if at <= now - self.lag_s), 0)


@every_law
@pytest.mark.parametrize("lag_s", [3.0, 6.0, 18.0])
def test_gauges_that_trail_do_not_cut_what_is_long_mended(law: type[Limit], lag_s: float) -> None:
    server = Lagging(16, lambda _: SERVICE_S, lag_s=lag_s)
    world = World(law(2, 300), server, backlog=300, scrape_every_s=1.0)
    world.run(120.0)
    assert min(world.limits_since(30.0)) >= 12
    assert sum(request.ended_at > 30.0 for request in world.done) / 90 >= 0.9 * 160


@every_law
def test_a_server_that_loses_half_its_capacity_and_gets_it_back_is_followed(
    law: type[Limit],
) -> None:
    server = Fifo(16, lambda _: SERVICE_S)
    world = World(law(2, 300), server, backlog=300)
    world.run(40.0)
    server.capacity = 8
    server._free_at = server._free_at[:8]
    world.run(80.0)
    assert max(world.limits_since(60.0)) <= 13
    server.capacity = 16
    world.run(120.0)
    assert min(world.limits_since(100.0)) >= 12


@every_law
def test_the_same_seed_gives_the_same_story(law: type[Limit]) -> None:
    def story() -> list:
        rng = random.Random(5)
        server = Fifo(16, lambda _: SERVICE_S * noise(rng, 0.3))
        world = World(law(4, 64), server, backlog=100)
        world.run(20.0)
        return world.moves

    assert story() == story()


@pytest.mark.parametrize("factor", [4, 16])
def test_capacity_that_grows_is_used(factor: int) -> None:
    server = Fifo(2, lambda _: SERVICE_S)
    world = World(Knee(1, 512), server, backlog=600)
    world.run(60.0)
    server.capacity = 2 * factor
    world.run(240.0)
    assert min(world.limits_since(200.0)) >= 2 * factor
