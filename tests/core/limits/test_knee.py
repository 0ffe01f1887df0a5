"""The law `knee`: bounds, what is left out, refusals, time-outs, the engine's word."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from forebay.core.limits.knee import Knee, KneeSettings
from forebay.core.model import Outcome, Signal, Timing, TimingKind
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Endpoint:
    """An endpoint that is kept as full as its law allows; `served` at once, the rest waits.

    Its requests end one after the other, evenly spaced.
    """

    law: Knee
    served: int = 10**6
    service_s: float = 0.1
    now: float = 0.0
    reasons: list[str] = field(default_factory=list)

    def run(self, seconds: float, *, most: int = 10**6, each: Callable[[], Any] = int) -> None:
        """Let some time pass; `most` requests are wanted at once."""
        until = self.now + seconds
        while self.now < until:
            inflight = min(self.law.decision.limit, most)
            took_s = self.service_s * max(1.0, inflight / self.served)
            self.now += took_s / inflight
            self.end(Outcome.OK, took_s, inflight)
            each()

    def end(self, outcome: Outcome, seconds: float, inflight: int | None = None) -> None:
        """One request ends."""
        decision = self.law.on_end(
            outcome,
            started_at=self.now - seconds,
            inflight=inflight or self.law.decision.limit,
            now=self.now,
        )
        if decision is not None:
            self.reasons.append(decision.reason)

    def say(self, **more: Any) -> None:
        """The engine reports."""
        at = more.pop("at", self.now)
        decision = self.law.on_signal(Signal("test", at, **more), now=self.now)
        if decision is not None:
            self.reasons.append(decision.reason)

    @property
    def limit(self) -> int:
        return self.law.decision.limit

    @property
    def reason(self) -> str:
        return self.law.decision.reason


def settled(served: int = 16, seconds: float = 60.0, **more: Any) -> Endpoint:
    """An endpoint whose knee has been found."""
    endpoint = Endpoint(Knee(1, 300), served, **more)
    endpoint.run(seconds)
    return endpoint


@pytest.mark.parametrize("served", [1, 2, 5, 16, 100])
def test_the_limit_rests_a_little_above_what_is_served_at_once(served: int) -> None:
    endpoint = settled(served)
    seen = set()
    endpoint.run(60.0, each=lambda: seen.add(endpoint.limit))
    assert min(seen) >= 0.8 * served
    assert max(seen) <= max(1.6 * served, served + 4)


def test_it_doubles_until_it_went_too_far() -> None:
    endpoint = Endpoint(Knee(1, 300), served=20)
    limits = []
    endpoint.run(5.0, each=lambda: limits.append(endpoint.limit))
    seen = list(dict.fromkeys(limits))
    assert seen[:7] == [1, 2, 4, 8, 16, 32, 64][: len(seen[:7])] or max(seen) <= 64
    assert endpoint.limit <= 40


def test_capacity_that_comes_back_is_found_within_seconds() -> None:
    endpoint = settled(16)
    endpoint.served = 64
    endpoint.run(10.0)
    assert endpoint.limit >= 64


def test_capacity_that_is_lost_is_followed() -> None:
    endpoint = settled(64)
    endpoint.served = 16
    endpoint.run(30.0)
    assert endpoint.limit <= 30


def test_an_endpoint_that_is_slower_for_everybody_keeps_its_limit() -> None:
    endpoint = settled(16)
    endpoint.service_s = 0.4
    endpoint.run(60.0)
    assert 14 <= endpoint.limit <= 26


def test_what_pays_in_part_is_kept() -> None:
    endpoint = Endpoint(Knee(1, 64))
    rising_s = 0.1 / 30  # what each one in flight adds: the work per second rises ever more slowly

    def slow_down() -> None:
        endpoint.service_s = 0.1 + rising_s * endpoint.limit

    endpoint.run(60.0, each=slow_down)
    assert endpoint.limit == 64
    endpoint.law.resize(floor=1, ceiling=512)
    endpoint.run(90.0, each=slow_down)
    assert endpoint.limit >= 128


def test_a_ceiling_and_a_floor_hold() -> None:
    endpoint = Endpoint(Knee(4, 12), served=64)
    endpoint.run(20.0)
    assert endpoint.limit == 12
    assert endpoint.reason == "held: at the ceiling"
    crowded = Endpoint(Knee(8, 32), served=2)
    crowded.run(25.0)
    assert crowded.limit == 8


def test_what_is_not_in_use_does_not_grow_and_its_room_is_no_ceiling() -> None:
    endpoint = Endpoint(Knee(1, 300), served=100)
    endpoint.run(600.0, most=6)
    assert endpoint.limit == 8
    endpoint.run(20.0)
    assert endpoint.limit >= 90


def test_demand_that_goes_beyond_the_knee_is_judged_though_it_does_not_fill_the_limit() -> None:
    endpoint = Endpoint(Knee(1, 300), served=32)
    endpoint.run(30.0, most=48)
    assert endpoint.limit <= 45


def test_the_first_answer_after_idling_says_nothing() -> None:
    endpoint = settled(16)
    before = endpoint.limit
    endpoint.now += 600.0
    for _ in range(before):
        endpoint.end(Outcome.OK, 30.0)  # a cold start of the engine, for all that were waiting
    endpoint.run(20.0)
    assert not [reason for reason in endpoint.reasons[-5:] if "slower" in reason]


def test_first_tokens_are_enough_while_the_limit_is_small() -> None:
    law = Knee(1, 64)
    law.on_end(Outcome.OK, started_at=0.0, inflight=1, now=5.0)
    for n in range(40):
        limit = law.decision.limit
        reading = Timing(TimingKind.FIRST_TOKEN, 0.1, 100.0)
        law.on_timing(reading, started_at=5.1 + n, inflight=limit, now=5.2 + n)
    assert law.decision.limit == 4


@pytest.mark.parametrize("kind", [TimingKind.OUTPUT_TOKEN, TimingKind.WORK])
def test_no_other_reading_moves_it(kind: TimingKind) -> None:
    law = Knee(1, 64)
    law.on_end(Outcome.OK, started_at=0.0, inflight=1, now=5.0)
    law.on_timing(Timing(kind, 0.1, 1.0), started_at=5.1, inflight=1, now=5.2)
    assert law.decision.limit == 1


def test_first_tokens_of_little_use_do_not_raise_it() -> None:
    law = Knee(2, 64)
    law.on_end(Outcome.OK, started_at=0.0, inflight=2, now=5.0)
    for n in range(40):
        reading = Timing(TimingKind.FIRST_TOKEN, 0.1, 100.0)
        law.on_timing(reading, started_at=5.1 + n, inflight=1, now=5.2 + n)
    assert law.decision.limit == 2


# -- refusals and time-outs ------------------------------------------------------------------------


def refuse(endpoint: Endpoint, seconds: float, *, takes: int) -> None:
    """It refuses whatever is more than `takes`, at once."""
    until = endpoint.now + seconds
    while endpoint.now < until:
        inflight = min(endpoint.limit, takes)
        endpoint.now += endpoint.service_s / inflight
        endpoint.end(Outcome.OK, endpoint.service_s, inflight)
        if endpoint.limit > takes:
            endpoint.end(Outcome.CONGESTION, 0.001, inflight + 1)


def test_refusals_bring_it_down_to_what_is_served_and_it_comes_back_soon() -> None:
    endpoint = settled(32)
    refuse(endpoint, 5.0, takes=8)
    assert 7 <= endpoint.limit <= 11
    assert "cut: refused for load" in endpoint.reasons
    endpoint.run(30.0)
    assert endpoint.limit >= 30


def test_what_was_refused_is_not_tried_again_for_a_while() -> None:
    endpoint = settled(32)
    refuse(endpoint, 60.0, takes=8)
    cuts = endpoint.reasons.count("cut: refused for load")
    refuse(endpoint, 60.0, takes=8)
    assert endpoint.reasons.count("cut: refused for load") - cuts <= 8


def test_refusals_at_random_do_not_cut() -> None:
    endpoint = settled(16)
    before = endpoint.limit
    endpoint.run(20.0, each=lambda: endpoint.end(Outcome.CONGESTION, 0.001))
    assert "cut: refused for load" not in endpoint.reasons
    assert endpoint.limit >= 0.8 * before


def test_time_outs_cut_once_in_a_drain_and_then_harder() -> None:
    endpoint = Endpoint(Knee(1, 64))
    endpoint.run(30.0)
    first = endpoint.limit
    limits = [first]
    for _ in range(400):
        endpoint.now += 0.05
        endpoint.end(Outcome.TIMEOUT, 5.0 if len(limits) == 1 else 0.3)
        if endpoint.limit != limits[-1]:
            limits.append(endpoint.limit)
    assert limits[1] == int(0.8 * first)
    assert limits[2] == limits[1] // 2
    assert limits[-1] == 1
    assert endpoint.reason == "held: at the floor; requests time out"


def test_a_caller_who_would_not_wait_is_no_time_out_of_the_endpoint() -> None:
    endpoint = settled(16)
    before = endpoint.limit
    for _ in range(100):
        endpoint.now += 0.1
        endpoint.end(Outcome.TIMEOUT, 0.15)
    assert endpoint.limit == before


@pytest.mark.parametrize(
    "outcome", [Outcome.FAILURE, Outcome.CLIENT_ERROR, Outcome.CANCELLED, Outcome.LOADING]
)
def test_what_says_nothing_of_load_moves_nothing(outcome: Outcome) -> None:
    endpoint = settled(16)
    before = endpoint.law.decision
    for _ in range(100):
        endpoint.now += 0.1
        endpoint.end(outcome, 0.05)
    assert endpoint.law.decision == before


# -- the engine's word -----------------------------------------------------------------------------


def test_preemptions_cut_once_and_only_as_news() -> None:
    endpoint = settled(64)
    before = endpoint.limit
    endpoint.say(preemptions=0.0)
    endpoint.now += 30.0
    endpoint.say(preemptions=3.0)
    assert endpoint.reasons[-1] == "cut: engine preempts"
    assert endpoint.limit == int(0.9 * before)
    endpoint.now += 5.0
    endpoint.say(preemptions=6.0)  # gauges trail
    assert endpoint.limit == int(0.9 * before)
    endpoint.now += 30.0
    endpoint.say(preemptions=6.0)
    assert endpoint.limit == int(0.9 * before)
    endpoint.say(preemptions=0.0)  # it was started anew
    assert endpoint.limit == int(0.9 * before)


def test_a_level_that_preempted_is_left_alone_for_a_minute() -> None:
    endpoint = settled(64)
    endpoint.say(preemptions=0.0)
    endpoint.now += 30.0
    endpoint.say(preemptions=3.0)
    before = endpoint.limit
    endpoint.served = 200
    endpoint.run(20.0)
    assert endpoint.limit <= before / 0.9
    endpoint.say(preemptions=3.0)
    endpoint.run(120.0, each=lambda: endpoint.say(preemptions=3.0))
    assert endpoint.limit > 100


def test_growth_ends_where_the_kv_cache_would_be_full() -> None:
    endpoint = Endpoint(Knee(1, 300), served=200)
    endpoint.run(30.0, each=lambda: endpoint.say(kv_usage=min(1.0, endpoint.limit / 100)))
    assert 60 <= endpoint.limit <= 90
    assert endpoint.reason == "held: KV cache"


def test_an_engine_that_queues_or_falls_silent_holds_growth_and_stops_nothing() -> None:
    endpoint = Endpoint(Knee(4, 300), served=200)
    endpoint.run(1.0, each=lambda: endpoint.say(saturated=True))
    assert endpoint.reason == "held: engine queue"
    endpoint.run(9.0, each=lambda: endpoint.say(saturated=True))
    assert endpoint.limit == 4
    endpoint.say(saturated=False)
    endpoint.run(5.0)
    grown = endpoint.limit
    assert grown > 4
    endpoint.law.on_signal(None, now=endpoint.now)
    endpoint.now += 16.0
    endpoint.run(10.0)
    assert endpoint.limit <= grown
    assert endpoint.reason == "held: engine metrics are stale"


def test_prompts_that_queue_after_a_step_up_do_not_end_the_ramp() -> None:
    endpoint = Endpoint(Knee(4, 300), served=100)
    while endpoint.limit < 16:
        endpoint.run(0.01)
    endpoint.run(0.22, each=lambda: endpoint.say(saturated=True))
    assert endpoint.limit == 16
    endpoint.say(saturated=False)
    endpoint.run(0.5)
    assert endpoint.limit >= 32
    assert endpoint.reasons == ["grew: more in flight pays"] * len(endpoint.reasons)


def test_unknown_is_not_zero() -> None:
    endpoint = Endpoint(Knee(1, 64), served=200)
    endpoint.run(20.0, each=lambda: endpoint.law.on_signal(None, now=endpoint.now))
    assert endpoint.limit == 64


def test_much_that_waits_in_the_engine_again_and_again_makes_it_look_lower() -> None:
    endpoint = Endpoint(Knee(32, 300), served=10**6)
    endpoint.run(1.0)
    endpoint.law.resize(floor=1, ceiling=64)
    endpoint.served = 32  # at 64 from the beginning, nothing gets slower
    endpoint.run(4.0)
    queue = {"running": 32.0, "waiting": 32.0, "saturated": True}

    def report() -> None:
        if int(endpoint.now * 1000) % 5000 < 10:
            endpoint.say(**queue)

    endpoint.run(120.0, each=report)
    assert endpoint.limit <= 45


# -- bounds, clock ---------------------------------------------------------------------------------


def test_new_bounds_are_explained() -> None:
    endpoint = settled(64)
    decision = endpoint.law.resize(floor=1, ceiling=10)
    assert decision is not None
    assert decision.reason == "resized: between 1 and 10"


@pytest.mark.parametrize("wrong", [{"backoff": 0.0}, {"backoff": 1.0}, {"stale_s": 0.0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        KneeSettings(**wrong)
