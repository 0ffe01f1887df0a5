from __future__ import annotations

from dataclasses import dataclass

import pytest

from forebay.core.limits.gradient_aimd import GradientAimd, GradientSettings
from forebay.core.model import Decision, EngineState, Outcome, Signal, Timing, TimingKind
from forebay.errors import ConfigError

FIRST_TOKEN, OUTPUT_TOKEN, WORK = TimingKind
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass
class Caller:
    """Calls an endpoint through a law, as many requests at once as it allows."""

    law: GradientAimd
    now: float = 0.0

    def work(self, seconds: float, *, count: int = 1, inflight: int | None = None) -> None:
        """Let `count` requests end that were admitted just before they were due."""
        for _ in range(count):
            busy = self.law.decision.limit if inflight is None else inflight
            self.now += max(0.02, seconds / max(1, busy))
            self.finish(seconds, started_at=self.now - 0.01, inflight=busy)

    def finish(self, seconds: float, *, started_at: float, inflight: int) -> None:
        at = {"started_at": started_at, "inflight": inflight, "now": self.now}
        self.law.on_timing(Timing(WORK, seconds, 1.0), **at)
        self.law.on_end(Outcome.OK, **at)

    def end(self, outcome: Outcome, *, ago_s: float = 0.01) -> Decision | None:
        self.now += 0.02
        return self.law.on_end(
            outcome,
            started_at=self.now - ago_s,
            inflight=self.law.decision.limit,
            now=self.now,
        )

    def scrape(
        self,
        *,
        saturated: bool | None,
        age_s: float = 0.0,
        state: EngineState = EngineState.AWAKE,
    ) -> Decision | None:
        self.now += 0.02
        signal = Signal("test", self.now - age_s, state=state, saturated=saturated)
        return self.law.on_signal(signal, now=self.now)

    def settle(self) -> None:
        """Go on until the law has just judged, and looks at what comes next."""
        judged = self.law.decision
        while self.law.decision is judged:
            self.work(0.1)

    @property
    def limit(self) -> int:
        return self.law.decision.limit

    @property
    def reason(self) -> str:
        return self.law.decision.reason


def caller(floor: int = 2, ceiling: int = 64, at: int | None = None) -> Caller:
    """Return a caller whose law has learned 0.1 s and has grown to `at`."""
    called = Caller(GradientAimd(floor, at or ceiling))
    called.work(0.1, count=600)
    called.settle()
    if at:
        assert called.limit == at
        called.law.resize(floor=floor, ceiling=ceiling)
    return called


# -- growing ---------------------------------------------------------------------------------------


def test_it_doubles_until_the_first_cut_and_then_grows_by_a_tenth() -> None:
    called = Caller(GradientAimd(2, 512))
    called.work(0.1, count=4000)
    assert called.limit == 512
    called = caller(at=32)
    called.end(Outcome.CONGESTION)
    assert called.limit == 25
    steps = [called.limit]
    while steps[-1] < 64:
        called.work(0.1)
        if called.limit != steps[-1]:
            steps.append(called.limit)
    assert steps == [25, 28, 30, 34, 37, 41, 45, 49, 54, 60, 64]
    assert called.reason.startswith("grew: latency within 0.9 of baseline, in use")


def test_growth_needs_the_limit_to_be_in_use() -> None:
    called = caller(at=20)
    called.work(0.1, count=400, inflight=17)
    assert called.law.decision == Decision(20, "held: not in use, at most 17 of 20 in flight")
    called.work(0.1, count=40, inflight=18)
    assert called.limit == 40


def test_a_few_requests_a_second_are_enough_to_grow() -> None:
    called = Caller(GradientAimd(2, 64))
    for _ in range(400):
        called.now += 0.3
        called.finish(0.1, started_at=called.now - 0.1, inflight=called.limit)
    assert called.limit == 64


def test_requests_admitted_before_the_limit_moved_say_nothing_about_it() -> None:
    called = caller(at=16)
    called.settle()
    assert called.limit == 32
    moved_at = called.now
    for _ in range(200):
        called.now += 0.05
        called.finish(5.0, started_at=moved_at - 0.01, inflight=32)
    assert called.limit == 32


def test_a_limit_is_judged_good_only_after_all_of_it_was_used() -> None:
    called = caller(at=40)
    called.work(0.1, count=39)
    assert called.limit == 40
    called.work(0.1, count=10)
    assert called.limit == 64


# -- cutting ---------------------------------------------------------------------------------------


def test_latency_above_the_target_cuts_and_says_by_how_much() -> None:
    called = caller(at=20)
    called.work(0.23, count=16)
    assert called.law.decision == Decision(16, f"cut: work 2.3 {TIMES} baseline")


def test_latency_within_the_target_does_not_cut() -> None:
    called = caller(at=20)
    called.work(0.109, count=1000)
    assert called.limit == 64


def test_there_is_one_cut_per_drain_and_then_another_if_it_is_still_bad() -> None:
    called = caller(at=20)
    called.work(0.3, count=16)
    cut_at = called.now
    for _ in range(20):  # what was in flight at the cut
        called.now += 0.02
        called.finish(0.5, started_at=cut_at - 0.1, inflight=16)
    assert called.limit == 16
    called.work(0.3, count=15)
    assert called.limit == 16
    called.work(0.3, count=1)
    assert called.limit == 12


def test_a_burst_of_refusals_is_one_cut() -> None:
    called = caller(at=20)
    began = called.now
    for _ in range(7):
        called.end(Outcome.CONGESTION, ago_s=called.now + 0.02 - began + 0.01)
    assert called.law.decision == Decision(16, "cut: refused for load")
    called.end(Outcome.CONGESTION)
    assert called.limit == 12


def test_a_time_out_cuts_and_requests_that_never_answer_never_raise_it() -> None:
    called = caller(at=20)
    assert called.end(Outcome.TIMEOUT) == Decision(16, "cut: a request timed out")
    for _ in range(200):
        called.end(Outcome.TIMEOUT)
    assert called.limit == 2
    assert called.reason == "held: at the floor; a request timed out"


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.FAILURE,
        Outcome.CLIENT_ERROR,
        Outcome.CONFIGURATION,
        Outcome.LOADING,
        Outcome.CANCELLED,
    ],
)
def test_what_says_nothing_about_load_moves_nothing(outcome: Outcome) -> None:
    called = caller(at=20)
    for _ in range(400):
        assert called.end(outcome) is None
    assert called.limit == 20


@pytest.mark.parametrize(
    ("limit", "backoff", "cuts"),
    [(10, 0.3, [3, 1, 1]), (3, 0.8, [2, 1, 1]), (10, 0.8, [8, 6, 4, 3, 2, 1])],
)
def test_no_cut_is_lost_to_rounding_and_none_ends_at_zero(
    limit: int, backoff: float, cuts: list[int]
) -> None:
    called = Caller(GradientAimd(limit, limit, GradientSettings(backoff=backoff)))
    called.law.resize(floor=0, ceiling=limit)
    seen = []
    for _ in cuts:
        called.end(Outcome.CONGESTION)
        seen.append(called.limit)
    assert seen == cuts
    raised = called.law.resize(floor=5, ceiling=limit) if limit > 5 else None
    assert limit <= 5 or raised == Decision(5, f"resized: between 5 and {limit}")


def test_a_cut_shrinks_the_limit_in_force_although_it_has_a_fraction() -> None:
    called = caller(floor=1, at=4)
    called.end(Outcome.CONGESTION)  # 3.2
    called.work(0.1, count=20)  # 4.2
    assert called.limit == 4
    called.end(Outcome.CONGESTION)
    assert called.limit == 3


# -- kinds -----------------------------------------------------------------------------------------


def stream(called: Caller, first_s: float, token_s: float, *, count: int, size: float) -> None:
    for _ in range(count):
        called.now += 0.05
        at = {"started_at": called.now - 0.01, "inflight": called.limit, "now": called.now}
        called.law.on_timing(Timing(FIRST_TOKEN, first_s, size), **at)
        called.law.on_timing(Timing(OUTPUT_TOKEN, token_s, 1.0), **at)
        called.law.on_end(Outcome.OK, **at)


def test_the_worst_kind_of_reading_decides() -> None:
    called = Caller(GradientAimd(2, 16))
    while called.reason != "held: at the ceiling":
        stream(called, 0.2, 0.02, count=1, size=300)
    assert called.limit == 16
    stream(called, 0.2, 0.05, count=17, size=300)
    assert called.law.decision == Decision(12, f"cut: output token 2.5 {TIMES} baseline")
    stream(called, 0.6, 0.02, count=17, size=300)
    assert called.law.decision == Decision(9, f"cut: first token 3.0 {TIMES} baseline")


def test_a_kind_that_is_seldom_seen_does_not_hold_up_the_others() -> None:
    called = caller(at=4)
    for n in range(200):
        called.work(0.1)
        if n % 50 == 0:
            at = {"started_at": called.now - 0.01, "inflight": 1, "now": called.now}
            called.law.on_timing(Timing(FIRST_TOKEN, 0.5, 10.0), **at)
    assert called.limit == 64


def test_growth_waits_for_the_kind_that_comes_late() -> None:
    called = Caller(GradientAimd(2, 64))
    stream(called, 0.2, 0.02, count=40, size=300)
    grown = called.limit
    assert grown > 2
    began = called.now
    for _ in range(100):  # first tokens of new requests, last tokens of old ones
        called.now += 0.02
        new = {"started_at": called.now - 0.01, "inflight": grown, "now": called.now}
        old = {"started_at": began - 9.0, "inflight": grown, "now": called.now}
        called.law.on_timing(Timing(FIRST_TOKEN, 0.2, 300.0), **new)
        called.law.on_timing(Timing(OUTPUT_TOKEN, 0.02, 1.0), **old)
    assert called.limit == grown


def test_a_new_size_is_learned_before_it_is_judged() -> None:
    called = caller(at=20)
    for _ in range(15):
        called.now += 0.05
        at = {"started_at": called.now - 0.01, "inflight": 20, "now": called.now}
        called.law.on_timing(Timing(WORK, 3.2, 32.0), **at)
    assert called.limit == 20


# -- the engine's own signal -----------------------------------------------------------------------


def test_an_engine_that_queues_cuts_once_per_drain() -> None:
    called = caller(at=20)
    assert called.scrape(saturated=True) == Decision(16, "cut: engine queue")
    called.now += 60.0
    assert called.scrape(saturated=True) is None
    called.work(0.1, count=16)
    assert called.scrape(saturated=True) == Decision(12, "cut: engine queue")


def test_a_queue_that_is_gone_but_still_reported_does_not_cut_again() -> None:
    called = caller(at=20)
    called.scrape(saturated=True)
    for _ in range(6):  # seconds
        called.work(0.1, count=50)
        assert called.scrape(saturated=True) is None
    assert called.scrape(saturated=False) is None
    assert called.scrape(saturated=True) == Decision(12, "cut: engine queue")


def test_nothing_grows_while_the_engine_queues() -> None:
    called = caller(at=20)
    called.scrape(saturated=True)
    called.work(0.1, count=200)
    assert called.law.decision == Decision(16, "held: engine queue")
    called.scrape(saturated=False)
    called.work(0.1, count=40)
    assert called.limit > 16


def test_a_scrape_from_before_the_cut_does_not_cut_again() -> None:
    called = caller(at=20)
    called.end(Outcome.CONGESTION)
    called.work(0.1, count=15)
    assert called.scrape(saturated=True, age_s=5.0) is None
    assert called.limit == 16


def test_stale_metrics_hold_growth_and_never_stop_traffic() -> None:
    called = caller(at=20)
    called.scrape(saturated=False)
    scraped_at = called.now
    while called.now < scraped_at + 14.0:
        called.work(0.1, inflight=3)
    assert called.reason == "held: not in use, at most 3 of 20 in flight"
    called.now = scraped_at + 16.0
    called.law.on_signal(None, now=called.now)
    called.work(0.1, count=200)
    assert called.reason == "held: engine metrics are stale"
    assert called.limit == 20
    called.scrape(saturated=False)
    called.work(0.1, count=60)
    assert called.limit > 20


def test_an_old_scrape_that_arrives_late_does_not_cut() -> None:
    called = caller(at=20)
    assert called.scrape(saturated=True, age_s=16.0) is None
    assert called.limit == 20


def test_an_engine_without_metrics_is_unknown_and_not_frozen() -> None:
    called = Caller(GradientAimd(2, 64))
    for _ in range(600):
        called.law.on_signal(None, now=called.now)
        called.work(0.1)
    assert called.limit == 64


@pytest.mark.parametrize("saturated", [None, False])
def test_an_engine_that_cannot_tell_its_queue_neither_cuts_nor_freezes(
    saturated: bool | None,
) -> None:
    called = caller(at=20)
    called.scrape(saturated=saturated)
    called.work(0.1, count=100)
    assert called.limit == 64


@pytest.mark.parametrize("state", [EngineState.ASLEEP, EngineState.LOADING])
def test_an_engine_that_sleeps_or_loads_is_not_congested(state: EngineState) -> None:
    called = caller(at=20)
    assert called.scrape(saturated=True, state=state) is None
    assert called.limit == 20


# -- idling, restarting, long incidents ------------------------------------------------------------


def test_the_first_answers_after_idling_are_not_held_against_anybody() -> None:
    called = caller(at=20)
    called.now += 3600.0
    woken_at = called.now
    for _ in range(20):  # a burst that pays for loading the model
        called.now += 0.5
        called.finish(8.0, started_at=woken_at, inflight=20)
    assert called.limit == 20


def test_the_first_answer_of_all_is_not_part_of_the_baseline() -> None:
    called = Caller(GradientAimd(2, 64))
    for _ in range(40):  # the first batch pays for compiling
        called.now += 0.05
        called.finish(9.0, started_at=0.0, inflight=2)
    called.work(0.1, count=600)
    called.settle()
    called.work(0.2, count=16)
    assert called.law.decision == Decision(51, f"cut: work 2.0 {TIMES} baseline")


def test_a_restart_keeps_the_baselines_and_skips_the_first_answer() -> None:
    called = caller(at=20)
    called.scrape(saturated=False)
    assert called.law.restart(now=called.now) == Decision(2, "restart: at the floor")
    restarted_at = called.now
    for _ in range(20):
        called.now += 0.05
        called.finish(9.0, started_at=restarted_at + 0.01, inflight=2)
    called.now += 20.0  # the metrics of before are forgotten too
    called.work(0.1, count=60)
    assert called.limit > 2
    called.work(0.5, count=60)
    assert called.reason.endswith(f"work 5.0 {TIMES} baseline")


def test_an_endpoint_that_stays_twenty_times_slower_stays_at_the_floor() -> None:
    called = caller(floor=1)
    for _ in range(2 * 3600):
        called.work(2.0)
    assert called.limit == 1
    assert called.reason.startswith("held: at the floor; work")
    called.work(0.1, count=4000)
    assert called.limit == 64


def test_a_congested_start_does_not_leave_a_high_baseline() -> None:
    called = Caller(GradientAimd(2, 16))
    called.work(2.0, count=200)
    called.work(0.1, count=100)
    called.work(0.2, count=60)
    assert called.limit < 16


@pytest.mark.parametrize(
    "values", [{"target": 1.0}, {"target": 0.0}, {"backoff": 1.5}, {"window": 1}, {"stale_s": 0}]
)
def test_settings_that_make_no_sense_are_refused_by_name(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        GradientSettings(**values)
