"""The core on virtual time: what holds in production holds here, and a run is its seed's."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

import pytest

from forebay.config.build import admission_of
from forebay.config.load import plan_from
from forebay.core.limits.gradient_aimd import GradientAimd
from forebay.core.model import Decision, Outcome, Reason, ServiceClass
from forebay.core.queue import QueueBounds
from forebay.sim import (
    Closed,
    EncoderSpec,
    FifoSpec,
    LlmSpec,
    Open,
    Record,
    Scenario,
    Scrape,
    SharedSpec,
    changes,
    endpoint,
    fixed,
    lognormal,
    steady,
)

if TYPE_CHECKING:
    from forebay.core.admission import Grant

CHAT = endpoint("chat", floor=2, ceiling=8)
EMBED = endpoint("embed", interactive=False, ceiling=16)
EACH_S = 0.1
FIFO = FifoSpec(4, lambda _size: EACH_S)


def storm(**more) -> Scenario:
    """Chat beside an embedding storm on one GPU, on limits that move."""
    return Scenario(
        servers={CHAT: LlmSpec(), EMBED: EncoderSpec()},
        budgets={"gpu": 6},
        loads=[
            Open(model="chat", rate=steady(2.0), sizes=lognormal(300, 60, sigma=0.8)),
            Closed(model="embed", workers=32, sizes=fixed(640, texts=16)),
            Closed(
                model="chat",
                workers=4,
                sizes=fixed(200, 100),
                service_class=ServiceClass.BEST_EFFORT,
                streamed=False,
            ),
        ],
        law=lambda e: GradientAimd(e.floor, e.ceiling),
        scrape=Scrape(),
        **more,
    )


def facts(record: Record) -> str:
    """All that is in a record; as text, since no NaN equals itself."""
    requests = [astuple(request) for request in record.requests]
    return repr((requests, record.limits, record.samples, record.peak_inflight))


def test_the_same_seed_gives_the_same_record_and_another_one_does_not() -> None:
    first, again, other = (storm().run(60.0, seed=seed) for seed in (1, 1, 2))
    assert facts(first) == facts(again)
    assert facts(first) != facts(other)


def test_a_run_in_parts_is_the_same_run() -> None:
    simulation = storm().simulation(1)
    for until in (7.0, 31.5, 60.0):
        record = simulation.run(until)
    assert facts(record) == facts(storm().run(60.0, seed=1))


def test_another_law_meets_the_same_arrivals() -> None:
    def arrivals(scenario: Scenario) -> list:
        requests = scenario.run(30.0, seed=3).requests
        return [
            (r.asked_at, r.size)
            for r in requests
            if r.model == "chat" and r.service_class is ServiceClass.INTERACTIVE
        ]

    assert arrivals(storm()) == arrivals(
        Scenario(servers={CHAT: LlmSpec()}, loads=storm().loads[:1])
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_storm_never_gets_above_the_budget_nor_below_chats_floor(seed: int) -> None:
    simulation = storm().simulation(seed)
    note_start = simulation.started

    def check_start(grant: Grant) -> None:
        assert grant.member.state.inflight <= grant.member.state.limit
        note_start(grant)

    simulation.started = check_start
    record = simulation.run(120.0)
    assert record.peak_inflight == {"gpu": 6}
    assert record.floor_violations == 0
    answered = record.select().answered
    assert {r.model for r in answered} == {"chat", "embed"}


def test_a_floor_that_is_kept_from_chat_is_noticed() -> None:
    simulation = storm().simulation()
    # Behind the core's back, the GPU is full.
    next(iter(simulation.limiter.admission.rooms.values())).inflight = 6
    assert simulation.run(5.0).floor_violations > 0


def test_no_server_idles_while_a_request_waits() -> None:
    record = Scenario(
        servers={endpoint("m", ceiling=4): FIFO},
        loads=[Closed(model="m", workers=20, sizes=fixed(1))],
    ).run(100.0)
    assert record.select().requests_per_s == pytest.approx(4 / EACH_S, rel=0.005)
    assert all(sample.inflight == 4 for sample in record.samples)


def test_shared_work_is_conserved_whatever_the_order() -> None:
    sizes = lognormal(1000, sigma=1.0)
    record = Scenario(
        servers={endpoint("m", ceiling=32): SharedSpec(lambda size: size.input_tokens / 1e4)},
        loads=[Closed(model="m", workers=8, sizes=sizes, total=500)],
    ).run(1000.0)
    done = record.select().answered
    work_s = sum(request.size.input_tokens / 1e4 for request in done)
    assert len(done) == 500
    assert max(request.ended_at for request in done) == pytest.approx(work_s)


def test_requests_go_where_a_slot_is_free_first() -> None:
    fast, slow = endpoint("m", group="fast", ceiling=1), endpoint("m", group="slow", ceiling=1)
    record = Scenario(
        servers={
            fast: FifoSpec(1, lambda _size: EACH_S),
            slow: FifoSpec(1, lambda _size: 9 * EACH_S),
        },
        loads=[Closed(model="m", workers=10, sizes=fixed(1))],
    ).run(90.0)
    done = record.select().answered
    assert sum(r.endpoint == fast.id for r in done) == pytest.approx(900, abs=5)
    assert sum(r.endpoint == slow.id for r in done) == pytest.approx(100, abs=5)


def test_who_waits_past_the_deadline_is_refused_then() -> None:
    record = Scenario(
        servers={endpoint("m", ceiling=1): FifoSpec(1, lambda _size: 9.0)},
        loads=[
            Closed(model="m", workers=1, sizes=fixed(1), total=1),
            Closed(model="m", workers=1, sizes=fixed(1), timeout_s=2.0, since_s=1.0, until_s=2.0),
        ],
    ).run(20.0)
    runs, waits = record.requests
    assert runs.ok
    assert (waits.refused, waits.ended_at) == (Reason.DEADLINE, 3.0)


@pytest.mark.parametrize(
    "server",
    [
        FifoSpec(1, lambda _size: 9.0),
        SharedSpec(lambda _size: 9.0),
        LlmSpec(overhead_s=1.0),
        EncoderSpec(overhead_s=9.0),
    ],
)
def test_who_runs_past_the_deadline_times_out_and_leaves_the_server(server) -> None:
    m = endpoint("m", ceiling=2)
    simulation = Scenario(
        servers={m: server},
        loads=[Closed(model="m", workers=2, sizes=fixed(8, 8), timeout_s=2.0, until_s=1.0)],
    ).simulation()
    record = simulation.run(20.0)
    assert [(r.outcome, r.ended_at) for r in record.requests] == [(Outcome.TIMEOUT, 2.0)] * 2
    signal = simulation.doors[m.id].server.signal(20.0)
    assert (signal.running, signal.waiting) == (0, 0)


def test_a_full_queue_refuses_and_workers_come_back() -> None:
    record = Scenario(
        servers={endpoint("m", ceiling=4): FIFO},
        loads=[Closed(model="m", workers=20, sizes=fixed(1), total=300)],
        bounds=QueueBounds(max_requests=8),
    ).run(60.0)
    assert sum(r.refused is Reason.QUEUE_FULL for r in record.requests) > 0
    assert len(record.select().answered) == 300


def test_any_law_can_be_plugged_in_and_hears_what_it_would_in_production() -> None:
    heard = []

    class Ear:
        decision = Decision(2, "fixed")

        def on_timing(self, timing, **_more) -> None:
            heard.append(timing.kind)

        def on_end(self, outcome, **_more) -> None:
            heard.append(outcome)

        def on_signal(self, signal, **_more) -> None:
            heard.append(signal if signal is None else (signal.at, signal.running))

    def run(streamed: bool) -> list:
        heard.clear()
        Scenario(
            servers={endpoint("chat"): LlmSpec()},
            loads=[Closed(model="chat", workers=1, sizes=fixed(9, 9), streamed=streamed, total=1)],
            law=lambda _endpoint: Ear(),
            scrape=Scrape(every_s=3.0),
        ).run(4.0)
        return list(heard)

    assert run(streamed=True) == ["first_token", "output_token", "ok", (3.0, 0)]
    assert run(streamed=False) == ["work", "ok", (3.0, 0)]


@pytest.mark.parametrize(("lag_s", "running"), [(0.0, 4), (18.0, 0)])
def test_gauges_that_trail_show_what_was_and_do_not_say_so(lag_s: float, running: int) -> None:
    simulation = Scenario(
        servers={endpoint("m"): FIFO},
        loads=[Closed(model="m", workers=9, sizes=fixed(1), since_s=10.0)],
        scrape=Scrape(every_s=5.0, lag_s=lag_s),
    ).simulation()
    simulation.run(26.0)
    signal = simulation.limiter.admission.states["m@gpu"].signal
    assert (signal.at, signal.running) == (25.0 if not lag_s else pytest.approx(23.0), running)


def test_an_endpoint_that_fails_is_left_alone_and_taken_back() -> None:
    a, b = (endpoint("m", group=group, ceiling=4) for group in "ab")
    record = Scenario(
        servers={a: FIFO, b: FIFO},
        loads=[Open(model="m", rate=steady(20.0), sizes=fixed(1))],
        changes=[(20.0, changes.fail(a.id)), (60.0, changes.recover(a.id))],
    ).run(120.0)

    def served_by_a(since: float, until: float) -> int:
        return sum(r.endpoint == a.id for r in record.select(since=since, until=until).answered)

    assert served_by_a(10.0, 20.0) > 50
    assert served_by_a(20.0, 60.0) == 0
    assert served_by_a(100.0, 120.0) > 100
    assert sum(r.outcome is Outcome.FAILURE for r in record.requests) < 20


def test_refusals_for_load_and_silence_reach_the_core_as_such() -> None:
    m = endpoint("m", ceiling=16)
    record = Scenario(
        servers={m: FIFO},
        loads=[Closed(model="m", workers=16, sizes=fixed(1), timeout_s=2.0)],
        changes=[
            (10.0, changes.refuse(m.id, above=4, retry_after_s=2.0)),
            (20.0, changes.recover(m.id)),
            (30.0, changes.hang(m.id)),
        ],
    ).run(40.0)

    def outcomes(since: float, until: float) -> set:
        return {r.outcome for r in record.select(since=since, until=until).requests}

    assert outcomes(0.0, 10.0) == {Outcome.OK}
    assert Outcome.CONGESTION in outcomes(10.0, 11.0)
    assert outcomes(25.0, 30.0) == {Outcome.OK}
    assert Outcome.TIMEOUT in outcomes(31.0, 40.0)


def test_half_the_servers_do_half_the_work() -> None:
    m = endpoint("m", ceiling=16)
    record = Scenario(
        servers={m: FIFO},
        loads=[Closed(model="m", workers=16, sizes=fixed(1))],
        changes=[(50.0, changes.servers(m.id, 2)), (100.0, changes.servers(m.id, 8))],
    ).run(150.0)
    rates = [record.select(since=s, until=s + 40).requests_per_s for s in (5.0, 55.0, 105.0)]
    assert rates == pytest.approx([40.0, 20.0, 80.0], rel=0.02)


def test_limits_and_budgets_can_be_moved_while_it_runs() -> None:
    m = endpoint("m", ceiling=2)
    record = Scenario(
        servers={m: FIFO},
        budgets={"gpu": 4},
        loads=[Closed(model="m", workers=16, sizes=fixed(1))],
        changes=[
            (10.0, changes.bounds(m.id, floor=1, ceiling=8)),
            (20.0, changes.budget("gpu", 3)),
        ],
    ).run(30.0)
    inflight = [s.inflight for s in record.samples]
    assert [inflight[5], inflight[15], inflight[25]] == [2, 4, 3]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_goes_wrong_every_request_ends_and_nothing_is_left(seed: int) -> None:
    chat = endpoint("chat", floor=2, ceiling=8)
    other = endpoint("chat", group="other", ceiling=8)
    until_s = 200.0
    simulation = Scenario(
        servers={
            chat: LlmSpec(kv_blocks=256, max_sequences=6),
            other: LlmSpec(kv_blocks=200),
            EMBED: EncoderSpec(),
        },
        budgets={"gpu": 6},
        bounds=QueueBounds(max_requests=40),
        loads=[
            Open(
                model="chat",
                rate=steady(6.0),
                sizes=lognormal(300, 80, sigma=1.0, most=1000),
                timeout_s=20.0,
                until_s=until_s,
            ),
            Closed(
                model="embed",
                workers=20,
                sizes=fixed(640, texts=16),
                timeout_s=10.0,
                until_s=until_s,
            ),
        ],
        scrape=Scrape(),
        changes=[
            (20.0, changes.noise("gpu", 0.3)),
            (30.0, changes.hang(EMBED.id)),
            (60.0, changes.recover(EMBED.id)),
            (70.0, changes.fail(chat.id)),
            (110.0, changes.recover(chat.id)),
            (120.0, changes.refuse(other.id, part=0.5)),
            (140.0, changes.recover(other.id)),
            (150.0, changes.capacity("gpu", 0.2)),
            (170.0, changes.drift("other", 1.0)),
        ],
    ).simulation(seed)
    record = simulation.run(until_s + 60.0)
    assert all(r.ended_at <= r.asked_at + 20.0 + 1e-9 for r in record.requests)
    assert all((r.outcome is None) != (r.refused is None) for r in record.requests)
    assert {r.outcome for r in record.requests} >= {Outcome.OK, Outcome.TIMEOUT, Outcome.FAILURE}
    assert record.preemptions[chat.id] + record.preemptions[other.id] > 0
    assert record.floor_violations == 0
    assert simulation.limiter.admission.live == 0
    for door in simulation.doors.values():
        signal = door.server.signal(record.seconds)
        assert (signal.running, signal.waiting, signal.kv_usage or 0.0) == (0, 0, 0.0)


def test_a_stranger_on_the_gpu_slows_chat_down_while_it_is_there() -> None:
    record = Scenario(
        servers={CHAT: LlmSpec()},
        loads=[Open(model="chat", rate=steady(0.2), sizes=fixed(100, 30))],
        changes=[(500.0, changes.co_tenant("gpu", seconds=500.0))],
    ).run(1500.0)
    before, during, after = (
        record.select(since=s + 5.0, until=s + 500.0).total_s(0.5) for s in (0.0, 500.0, 1000.0)
    )
    assert during == pytest.approx(2 * before, rel=0.1)
    assert after == pytest.approx(before, rel=0.05)


def test_a_configurations_own_admission_runs_in_a_simulation() -> None:
    plan = plan_from(
        b"""{
          "chat_models": [{"id": "chat", "base_url": "http://a/v1", "gpu_group": "g"}],
          "embedding_models": [{"id": "embed", "base_url": "http://b/v1", "gpu_group": "g"}],
          "GPU_CONCURRENCY_BUDGETS": {"g": 5},
        }""",
        file="test",
        environ={},
    )
    chat, embed = (planned.endpoint for planned in plan.endpoints)
    record = Scenario(
        servers={chat: LlmSpec(), embed: EncoderSpec()},
        loads=[Closed(model="embed", workers=32, sizes=fixed(640, texts=16))],
        admission=lambda rng, observer: admission_of(plan, rng, observer),
    ).run(30.0)
    assert record.peak_inflight == {"g": 5 - chat.floor}
    assert len(record.select("embed").answered) > 100
