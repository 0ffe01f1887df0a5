from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from forebay.core.breaker import (
    TRANSITIONS,
    Breaker,
    BreakerSettings,
    BreakerSnapshot,
    BreakerState,
    Pass,
)
from forebay.core.model import Outcome

SETTINGS = BreakerSettings()
LONGEST_S = 2 * SETTINGS.max_cooldown_s + 1.0  # a probe never has more time than a cooldown
FAILURES = {Outcome.FAILURE, Outcome.TIMEOUT}

steps = st.one_of(
    st.floats(0.0, 30.0),
    st.sampled_from([0.0, 5.0, 15.0, 300.0, 3600.0, 1e9]),
)
jumps = st.sampled_from([-1e9, -3600.0, -30.0, -0.001, 1e9])


class BreakerMachine(RuleBasedStateMachine):
    """Drives a breaker as its users do, with a clock that also jumps."""

    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.breaker = Breaker(SETTINGS, random.Random(1))
        self.probes: dict[int, float] = {}  # epoch → time left until it must be answered
        self.failures_in_a_row = 0
        self.last: BreakerSnapshot = self.breaker.snapshot(self.now)

    @rule(step=steps)
    def time_passes(self, step: float) -> None:
        self.now += step
        self.probes = {epoch: left_s - step for epoch, left_s in self.probes.items()}

    @rule(jump=jumps)
    def the_clock_jumps(self, jump: float) -> None:
        self.now += jump
        if jump > 0:
            self.probes = {epoch: left_s - jump for epoch, left_s in self.probes.items()}
        self.breaker.state(self.now)

    @rule(target=running)
    def a_request_is_granted(self) -> object:
        if not self.breaker.admits(self.now):
            return (None, self.breaker.state(self.now))
        before = self.breaker.state(self.now)
        pass_ = self.breaker.begin(self.now)
        assert pass_.probe is (before is BreakerState.HALF_OPEN)
        if pass_.probe:
            live = [left_s for left_s in self.probes.values() if left_s > 0]
            assert not live, "two live probes"
            self.probes[pass_.epoch] = pass_.timeout_s
        return (pass_, before)

    @rule(run=running)
    def a_request_gets_its_first_token(self, run: tuple[Pass | None, BreakerState]) -> None:
        pass_, _ = run
        if pass_ is None:
            return
        before = self.breaker.snapshot(self.now)
        change = self.breaker.answered(pass_, self.now)
        after = self.breaker.snapshot(self.now)
        if change is None:
            assert after == before
        else:
            assert pass_.probe
            assert before.probe_in_flight
            assert after.state is BreakerState.CLOSED
            del self.probes[pass_.epoch]

    @rule(run=consumes(running), outcome=st.sampled_from(Outcome))
    def a_request_ends(self, run: tuple[Pass | None, BreakerState], outcome: Outcome) -> None:
        pass_, _ = run
        if pass_ is None:
            return
        before = self.breaker.snapshot(self.now)
        change = self.breaker.end(pass_, outcome, self.now)
        after = self.breaker.snapshot(self.now)
        if pass_.probe:
            self.probes.pop(pass_.epoch, None)  # gone if it had been answered
        if change and change.before is not BreakerState.HALF_OPEN:
            assert before.failures == SETTINGS.fail_threshold - 1
            assert outcome in FAILURES
        if change:
            assert change.after in TRANSITIONS[change.before].values()
        if before.state is BreakerState.CLOSED and after.state is BreakerState.CLOSED:
            assert after.failures < SETTINGS.fail_threshold
        if before.state is not BreakerState.CLOSED and after.state is BreakerState.CLOSED:
            assert pass_.probe
            assert outcome is Outcome.OK

    @invariant()
    def counters_never_go_back(self) -> None:
        snapshot = self.breaker.snapshot(self.now)
        assert snapshot.trips >= self.last.trips
        assert snapshot.recoveries >= self.last.recoveries
        assert snapshot.trips - snapshot.recoveries == (snapshot.state is not BreakerState.CLOSED)
        self.last = snapshot

    @invariant()
    def looking_changes_nothing(self) -> None:
        first = self.breaker.snapshot(self.now)
        self.breaker.admits(self.now)
        self.breaker.retry_after_s(self.now)
        self.breaker.cap(1, 64, self.now)
        assert self.breaker.snapshot(self.now) == first

    @invariant()
    def times_are_in_bounds(self) -> None:
        snapshot = self.breaker.snapshot(self.now)
        assert 0.0 <= snapshot.remaining_s <= SETTINGS.max_cooldown_s
        assert 1 <= self.breaker.cap(1, 64, self.now) <= 64

    def teardown(self) -> None:
        """Whatever happened: once the endpoint is well, it is back within a bounded time."""
        for wait_s in (LONGEST_S, SETTINGS.max_cooldown_s):
            self.now += wait_s
            if self.breaker.admits(self.now):
                break
        assert self.breaker.admits(self.now)
        self.breaker.end(self.breaker.begin(self.now), Outcome.OK, self.now)
        assert self.breaker.state(self.now) is BreakerState.CLOSED


TestBreaker = BreakerMachine.TestCase
TestBreaker.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


@given(
    looks=st.lists(st.integers(0, 400), max_size=20),
    probe_at=st.integers(5, 40),
    seed=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_the_state_does_not_depend_on_when_it_was_looked_at(
    looks: list[int], probe_at: int, seed: int
) -> None:
    def run(times: list[int]) -> BreakerSnapshot:
        breaker = Breaker(BreakerSettings(), random.Random(seed))
        for _ in range(3):
            breaker.end(breaker.begin(0.0), Outcome.FAILURE, 0.0)
        for now in sorted([*times, probe_at]):
            if now == probe_at:
                breaker.begin(float(now))
            breaker.snapshot(float(now))
        last = breaker.snapshot(401.0)
        return BreakerSnapshot(
            last.state,
            last.failures,
            last.cooldown_s,
            round(last.remaining_s, 6),
            last.trips,
            last.recoveries,
            last.probe_in_flight,
            last.ramping,
        )

    assert run(looks) == run([])
