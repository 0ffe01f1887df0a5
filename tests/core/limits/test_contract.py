"""What every limit law promises; a new law joins `LAWS`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.limits.fixed import Fixed
from forebay.core.limits.gradient_aimd import GradientAimd
from forebay.core.limits.knee import Knee
from forebay.core.limits.protocol import Limit  # noqa: TC001 - laws are held to it
from forebay.core.model import Decision, EngineState, Outcome, Signal, Timing, TimingKind

if TYPE_CHECKING:
    from collections.abc import Callable

LAWS: list[type[Limit]] = [Fixed, GradientAimd, Knee]
ADAPTIVE = [GradientAimd, Knee]

times = st.one_of(
    st.floats(0.0, 1e5),
    st.sampled_from([-1e12, -1.0, 0.0, 1e12]),
    st.floats(allow_nan=True, allow_infinity=True),
)
counts = st.integers(0, 600)
timings = st.builds(
    Timing,
    st.sampled_from(TimingKind),
    st.one_of(st.floats(0.0, 100.0), st.floats(allow_nan=True, allow_infinity=True)),
    st.one_of(st.floats(0.0, 1e6), st.floats(allow_nan=True, allow_infinity=True)),
)
signals = st.none() | st.builds(
    Signal,
    st.just("any"),
    times,
    state=st.sampled_from(EngineState),
    saturated=st.sampled_from([None, False, True]),
    running=st.sampled_from([None, 0.0, 8.0]),
    waiting=st.sampled_from([None, 0.0, 1.0, 30.0]),
    waiting_unit=st.sampled_from(["requests", "inputs"]),
    waiting_capacity=st.sampled_from([None, 0.0, 30.0]),
    kv_usage=st.sampled_from([None, 0.0, 0.3, 0.97, 1.0]),
    preemptions=st.sampled_from([None, 0.0, 5.0, 9.0]),
)
works = st.sampled_from([0.0, 1.0, 3000.0, -1.0, float("nan"), float("inf")])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("timing"), timings, times, counts, times),
        st.tuples(st.just("end"), st.sampled_from(Outcome), times, counts, times, works),
        st.tuples(st.just("signal"), signals, times),
        st.tuples(st.just("restart"), times, st.none() | st.integers(-2, 600)),
        st.tuples(st.just("resize"), st.integers(-2, 50), st.integers(-2, 600)),
    ),
    max_size=60,
)


def apply(law: Limit, step: tuple) -> Decision | None:
    match step:
        case ("timing", timing, started_at, inflight, now):
            return law.on_timing(timing, started_at=started_at, inflight=inflight, now=now)
        case ("end", outcome, started_at, inflight, now, work):
            return law.on_end(outcome, started_at=started_at, inflight=inflight, now=now, work=work)
        case ("signal", signal, now):
            return law.on_signal(signal, now=now)
        case ("restart", now, limit):
            return law.restart(now=now, limit=limit)
        case ("resize", floor, ceiling):
            return law.resize(floor=floor, ceiling=ceiling)
    raise AssertionError(step)


def healthy(law: Limit, *, seconds: float, now: float = 0.0, service_s: float = 0.1) -> float:
    """Keep the law's limit in use by requests that all take `service_s`."""
    until = now + seconds
    while now < until:
        limit = law.decision.limit
        now += service_s / limit
        at = {"started_at": now - service_s, "inflight": limit, "now": now}
        law.on_timing(Timing(TimingKind.WORK, service_s, 1.0), **at)
        law.on_end(Outcome.OK, **at)
    return now


@pytest.mark.parametrize("make", LAWS)
@given(floor=st.integers(-2, 50), ceiling=st.integers(-2, 600), steps=steps)
@settings(max_examples=150, deadline=None)
def test_whatever_happens_the_limit_stays_in_bounds(
    make: Callable[[int, int], Limit], floor: int, ceiling: int, steps: list[tuple]
) -> None:
    law = make(floor, ceiling)
    for step in [("resize", floor, ceiling), *steps]:
        if step[0] == "resize":
            floor, ceiling = step[1:]
        before = law.decision.limit
        returned = apply(law, step)
        decision = law.decision
        assert max(1, min(floor, ceiling)) <= decision.limit <= max(1, ceiling)
        assert isinstance(decision.limit, int)
        assert returned in (None, decision)
        assert (returned is None) == (decision.limit == before)
        assert decision.reason


requests = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.001, 0.02, 0.4, 40.0, -0.5, -1e6, 1e6]),  # time since the last
        timings,
        st.sampled_from([0.0, 0.01, 0.3, 20.0]),  # how long it was in flight
        st.sampled_from([*[Outcome.OK] * 12, *Outcome]),
        signals,
    ),
    min_size=50,
    max_size=200,
)


@pytest.mark.parametrize("make", LAWS)
@given(requests=requests, repeat=st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_any_traffic_on_any_clock_is_survived(
    make: Callable[[int, int], Limit], requests: list[tuple], repeat: int
) -> None:
    law = make(2, 40)
    now = 0.0
    for step_s, timing, took_s, outcome, signal in requests * repeat:
        now += step_s
        at = {"started_at": now - took_s, "inflight": law.decision.limit, "now": now}
        law.on_timing(timing, **at)
        law.on_end(outcome, work=timing.size, **at)
        law.on_signal(signal, now=now)
        assert 1 <= law.decision.limit <= 40


@pytest.mark.parametrize("make", LAWS)
def test_after_the_clock_has_jumped_back_the_law_still_works(
    make: Callable[[int, int], Limit],
) -> None:
    law = make(2, 64)
    healthy(law, seconds=5.0, now=1e9)
    healthy(law, seconds=60.0, now=0.0)
    assert law.decision.limit == 64


@pytest.mark.parametrize("make", LAWS)
@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.OK])
def test_what_did_not_succeed_never_raises_the_limit(
    make: Callable[[int, int], Limit], outcome: Outcome
) -> None:
    law = make(4, 512)
    before = law.decision.limit
    for n in range(400):
        now = 0.01 * n
        law.on_end(outcome, started_at=now - 0.005, inflight=law.decision.limit, now=now)
    assert law.decision.limit <= before


@pytest.mark.parametrize("make", LAWS)
def test_new_bounds_hold_at_once_and_revoke_nothing_that_was_learned(
    make: Callable[[int, int], Limit],
) -> None:
    law = make(2, 64)
    now = healthy(law, seconds=30.0)
    assert law.decision.limit == 64
    lowered = law.resize(floor=1, ceiling=3)
    assert lowered is not None
    assert lowered.limit == 3
    law.resize(floor=5, ceiling=64)
    assert law.decision.limit >= 5
    healthy(law, seconds=30.0, now=now)
    assert law.decision.limit == 64


@pytest.mark.parametrize("make", LAWS)
@pytest.mark.parametrize("floor", [-1, 0, 1])
def test_a_floor_that_was_left_out_counts_as_one(
    make: Callable[[int, int], Limit], floor: int
) -> None:
    assert make(floor, 8).decision.limit >= 1


@pytest.mark.parametrize("make", ADAPTIVE)
def test_it_starts_at_the_floor_and_begins_there_again(make: Callable[[int, int], Limit]) -> None:
    law = make(3, 64)
    assert law.decision.limit == 3
    now = healthy(law, seconds=30.0)
    assert law.decision.limit == 64
    again = law.restart(now=now)
    assert again is not None
    assert again.limit == 3


@pytest.mark.parametrize("make", ADAPTIVE)
@pytest.mark.parametrize(("others", "begins"), [(1, 3), (12, 12), (100, 64)])
def test_a_new_one_begins_where_others_like_it_are_within_its_bounds(
    make: Callable[[int, int], Limit], others: int, begins: int
) -> None:
    law = make(3, 64)
    law.restart(now=0.0, limit=others)
    assert law.decision.limit == begins


@pytest.mark.parametrize("make", ADAPTIVE)
def test_where_it_begins_is_not_where_it_ends(make: Callable[[int, int], Limit]) -> None:
    law = make(3, 64)
    law.restart(now=0.0, limit=12)
    healthy(law, seconds=30.0)
    assert law.decision.limit == 64


@pytest.mark.parametrize("make", ADAPTIVE)
def test_calls_one_after_the_other_do_not_raise_a_limit_that_they_do_not_use(
    make: Callable[[int, int], Limit],
) -> None:
    law = make(4, 512)
    for n in range(1000):
        at = {"started_at": 0.02 * n - 0.01, "inflight": 1, "now": 0.02 * n}
        law.on_timing(Timing(TimingKind.WORK, 0.01, 1.0), **at)
        law.on_end(Outcome.OK, **at)
    assert law.decision.limit == 4


@pytest.mark.parametrize("make", ADAPTIVE)
def test_constant_time_outs_end_at_the_floor(make: Callable[[int, int], Limit]) -> None:
    law = make(2, 64)
    now = healthy(law, seconds=30.0)
    for _ in range(400):
        now += 0.5
        law.on_end(Outcome.TIMEOUT, started_at=now - 0.4, inflight=law.decision.limit, now=now)
    assert law.decision.limit == 2
