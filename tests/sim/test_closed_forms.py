"""Queues whose answers are known: clock, driver, loads and GPU against theory, within 2 %."""

from __future__ import annotations

from math import factorial
from statistics import fmean
from typing import TYPE_CHECKING

import pytest

from forebay.sim import FifoSpec, Open, Scenario, SharedSpec, Size, endpoint, steady

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from forebay.sim import ServerSpec

MEAN_S = 0.05
TOKENS_PER_S = 1_000_000
REQUESTS = 100_000
MODEL = endpoint("m", ceiling=10**6)


def service_s(size: Size) -> float:
    return size.input_tokens / TOKENS_PER_S


def exponential(rng: Random, _now: float) -> Size:
    return Size(1 + int(rng.expovariate(1 / MEAN_S) * TOKENS_PER_S))


def two_sizes(rng: Random, _now: float) -> Size:
    """One in seventeen takes 18 times as long as the others: the variance is 4 times the mean²."""
    short_s = MEAN_S / 2
    return Size(int((short_s if rng.random() < 16 / 17 else 18 * short_s) * TOKENS_PER_S))


def run(
    server: ServerSpec, sizes: Callable[[Random, float], Size], offered: float
) -> tuple[float, float, float]:
    """Offer that load; return arrivals a second, mean service and mean time in the system.

    Theory is asked about the load that really came: the dice of a long queue are much more
    in how much came than in how it was served.
    """
    rate = offered / MEAN_S
    scenario = Scenario(
        servers={MODEL: server}, loads=[Open(model="m", rate=steady(rate), sizes=sizes)]
    )
    record = scenario.run(REQUESTS / rate, seed=2)
    done = record.select().answered
    came = len(record.requests) / record.seconds
    return came, fmean(service_s(r.size) for r in done), fmean(r.total_s for r in done)


def erlang_c(servers: int, offered: float) -> float:
    """The probability that an arrival has to wait in M/M/c."""
    busy = offered**servers / factorial(servers) / (1 - offered / servers)
    return busy / (sum(offered**k / factorial(k) for k in range(servers)) + busy)


@pytest.mark.parametrize(("servers", "offered"), [(1, 0.5), (4, 2.8), (8, 5.6)])
def test_waiting_in_m_m_c_is_erlangs(servers: int, offered: float) -> None:
    came, mean_s, total_s = run(FifoSpec(servers, service_s), exponential, offered)
    load = came * mean_s
    expected_s = erlang_c(servers, load) * mean_s / (servers - load)
    assert total_s - mean_s == pytest.approx(expected_s, rel=0.02)


@pytest.mark.parametrize("sizes", [exponential, two_sizes])
def test_time_under_processor_sharing_depends_on_the_mean_size_alone(sizes) -> None:
    came, mean_s, total_s = run(SharedSpec(service_s), sizes, 0.6)
    assert total_s == pytest.approx(mean_s / (1 - came * mean_s), rel=0.02)
