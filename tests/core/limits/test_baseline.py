from __future__ import annotations

import random
from math import exp, inf, log2, nan

import pytest

from forebay.core.limits.baseline import Baseline


class Endpoint:
    """Feeds a baseline ten readings a second."""

    def __init__(self, *, at_floor: bool = False) -> None:
        self.baseline = Baseline()
        self.now = 0.0
        self.at_floor = at_floor

    def read(self, seconds: float, size: float = 1.0, *, times: int = 1) -> float | None:
        excess = None
        for _ in range(times):
            self.now += 0.1
            excess = self.baseline.read(seconds, size, at_floor=self.at_floor, now=self.now)
        return excess

    def ratio(self, seconds: float, size: float = 1.0) -> float:
        excess = self.read(seconds, size)
        assert excess is not None
        return 2**excess


def learned(seconds: float = 0.1, *, at_floor: bool = False) -> Endpoint:
    endpoint = Endpoint(at_floor=at_floor)
    endpoint.read(seconds, times=16)
    return endpoint


def test_readings_that_agree_are_learned_quickly() -> None:
    endpoint = Endpoint()
    assert endpoint.read(0.1, times=16) is None
    assert endpoint.ratio(0.2) == pytest.approx(2.0)


def test_readings_that_scatter_are_learned_longer_and_well() -> None:
    rng = random.Random(3)
    endpoint = Endpoint()
    readings = 0
    while endpoint.read(0.1 * exp(rng.gauss(0, 0.3))) is None:
        readings += 1
    assert 100 < readings <= 256
    assert endpoint.ratio(0.1) == pytest.approx(1.0, abs=0.06)


def test_where_readings_come_slowly_fewer_must_do() -> None:
    rng = random.Random(3)
    baseline = Baseline()
    readings = 0
    while baseline.read(exp(rng.gauss(0, 0.3)), 1.0, at_floor=False, now=2.0 * readings) is None:
        readings += 1
    assert readings == 32


def test_a_size_that_was_never_seen_is_learned_and_not_judged() -> None:
    endpoint = learned()
    assert endpoint.read(3.0, 32.0, times=16) is None
    assert endpoint.ratio(3.0, 32.0) == pytest.approx(1.0)
    assert endpoint.ratio(0.1, 1.0) == pytest.approx(1.0)


@pytest.mark.parametrize("sizes", [(33, 40), (60, 40), (33, 50, 63)])
def test_sizes_within_one_doubling_are_told_apart(sizes: tuple[int, ...]) -> None:
    endpoint = Endpoint()
    for size in sizes:
        endpoint.read(0.01 * size, size, times=20)
    for size in sizes:
        assert endpoint.ratio(0.01 * size, size) == pytest.approx(1.0, abs=0.02)


def test_time_that_grows_with_size_is_expected_at_any_size() -> None:
    rng = random.Random(5)
    endpoint = Endpoint()
    worst = 0.0
    for n in range(6000):
        size = exp(rng.gauss(5, 1.0))
        excess = endpoint.read(0.02 + 0.0004 * size, size)
        if n > 2000 and excess is not None:
            worst = max(worst, abs(excess))
    assert worst < log2(1.1)


def test_new_sizes_to_either_side_of_a_known_one_tell_how_time_grows() -> None:
    endpoint = Endpoint()
    endpoint.read(0.090, 90.0, times=16)
    for _ in range(32):
        for size in (81.0, 100.0):
            endpoint.read(size / 1000, size)
    for size in (82.0, 90.0, 99.0):
        assert endpoint.ratio(size / 1000, size) == pytest.approx(1.0, abs=0.05)


def test_a_size_learned_while_others_are_slow_is_not_taken_for_slow_itself() -> None:
    endpoint = learned()
    endpoint.read(0.3, 1.0, times=100)  # three times its baseline
    for _ in range(16):
        endpoint.read(0.3, 1.0, times=3)
        endpoint.read(6.0, 32.0)  # and so is this one, of which there is none yet
    assert endpoint.ratio(2.0, 32.0) == pytest.approx(1.0, abs=0.1)


def test_a_congested_start_is_forgotten_as_soon_as_it_gets_better() -> None:
    endpoint = learned(2.0)
    endpoint.read(0.1, times=16)
    assert endpoint.ratio(0.1) == pytest.approx(1.0)


def test_one_lucky_request_or_a_few_move_nothing() -> None:
    endpoint = learned()
    for _ in range(50):
        endpoint.read(0.001, times=15)
        endpoint.read(0.1)
    assert endpoint.ratio(0.1) == pytest.approx(1.0)


def test_noise_alone_moves_nothing() -> None:
    rng = random.Random(1)
    endpoint = Endpoint()
    for _ in range(40_000):
        endpoint.read(0.1 * exp(rng.gauss(0, 0.3)))
    assert endpoint.ratio(0.1) == pytest.approx(1.0, abs=0.08)


def test_congestion_above_the_floor_never_becomes_the_baseline() -> None:
    endpoint = learned()
    endpoint.read(0.3, times=100_000)
    assert endpoint.ratio(0.1) == pytest.approx(1.0)


def test_at_the_floor_a_slow_drift_is_followed() -> None:
    endpoint = learned(at_floor=True)
    seconds = 0.1
    for _ in range(30):
        seconds *= 1.005  # half a per cent a minute
        endpoint.read(seconds, times=600)
    assert endpoint.ratio(seconds) == pytest.approx(1.0, abs=0.05)


def test_at_the_floor_an_incident_is_not_forgotten_however_long_it_lasts() -> None:
    endpoint = learned(at_floor=True)
    endpoint.read(2.0, times=6 * 3600 * 10)
    assert endpoint.ratio(2.0) == pytest.approx(10.0, rel=0.01)
    endpoint.read(0.1, times=16)
    assert endpoint.ratio(0.1) == pytest.approx(1.0, abs=0.001)


def test_once_forgiven_a_baseline_may_rise_again() -> None:
    endpoint = learned(at_floor=True)
    endpoint.read(2.0, times=2 * 3600 * 10)
    endpoint.baseline.forgive()
    endpoint.read(2.0, times=2 * 3600 * 10)
    assert endpoint.ratio(2.0) == pytest.approx(5.0, rel=0.01)


@pytest.mark.parametrize("size", [0.0, -1.0, nan, inf, 1e300])
def test_sizes_out_of_range_are_brought_into_it(size: float) -> None:
    endpoint = Endpoint()
    endpoint.read(0.1, size, times=16)
    assert endpoint.ratio(0.2, size) == pytest.approx(2.0)


def test_memory_is_bounded() -> None:
    rng = random.Random(2)
    endpoint = Endpoint()
    for _ in range(20_000):
        endpoint.read(rng.random(), exp(rng.uniform(-5, 40)))
    assert len(endpoint.baseline._classes) <= 25
    assert all(len(known._learning) < 256 for known in endpoint.baseline._classes.values())
