"""Endpoints that come and go while a simulation runs."""

from __future__ import annotations

import pytest

from forebay.core.model import Outcome, Reason
from forebay.sim import (
    Closed,
    FifoSpec,
    LlmSpec,
    Open,
    Record,
    Scenario,
    Scrape,
    changes,
    endpoint,
    fixed,
    lognormal,
    steady,
)

EACH_S = 0.1
FIFO = FifoSpec(4, lambda _size: EACH_S)
A, B = (endpoint("m", group=group, ceiling=4) for group in "ab")
BACKLOG = Closed(model="m", workers=20, sizes=fixed(1))


def answers_per_s(record: Record, since: float, until: float) -> float:
    return record.select("m", since=since, until=until).requests_per_s


def failed(record: Record) -> list:
    return [r for r in record.requests if r.refused or r.outcome not in (None, Outcome.OK)]


def test_who_waits_starts_at_once_at_a_host_that_is_added() -> None:
    simulation = Scenario(
        servers={A: FIFO}, loads=[BACKLOG], changes=[(20.05, changes.add(B, FIFO))]
    ).simulation()
    simulation.run(20.05)
    assert simulation.limiter.admission.states[B.id].inflight == 4
    record = simulation.run(40.0)
    assert answers_per_s(record, 5.0, 20.0) == pytest.approx(4 / EACH_S, rel=0.02)
    assert answers_per_s(record, 25.0, 40.0) == pytest.approx(8 / EACH_S, rel=0.02)
    assert [s.at for s in record.samples_of(B.id)][:1] == [21.0]


def test_a_host_that_is_removed_finishes_what_it_has_and_then_is_gone() -> None:
    slow = FifoSpec(4, lambda _size: 9.0)
    simulation = Scenario(
        servers={A: FIFO, B: slow}, loads=[BACKLOG], changes=[(20.0, changes.remove(B.id))]
    ).simulation()
    simulation.run(25.0)
    assert simulation.limiter.admission.states[B.id].draining
    record = simulation.run(40.0)
    assert B.id not in simulation.limiter.admission.states
    assert B.id not in simulation.doors
    assert failed(record) == []
    assert max(r.started_at for r in record.requests if r.endpoint == B.id) <= 20.0
    assert max(s.at for s in record.samples_of(B.id)) == 26.0


def test_a_host_that_drains_serves_again_when_it_is_added_even_if_it_was_to_be_removed() -> None:
    for leave in (changes.drain(B.id), changes.remove(B.id)):
        simulation = Scenario(
            servers={A: FIFO, B: FifoSpec(4, lambda _size: 5.0)},
            loads=[BACKLOG],
            changes=[(21.0, leave), (22.0, changes.add(B, FIFO))],
        ).simulation()
        server = simulation.doors[B.id].server
        record = simulation.run(40.0)
        assert failed(record) == []
        assert simulation.doors[B.id].server is server
        assert max(r.started_at for r in record.requests if r.endpoint == B.id) > 25.0


def test_a_host_that_was_taken_out_may_come_back_with_another_server() -> None:
    record = Scenario(
        servers={A: FIFO, B: FIFO},
        loads=[BACKLOG],
        scrape=Scrape(every_s=2.0, lag_s=3.0),
        changes=[
            (10.0, changes.remove(B.id)),
            (20.0, changes.add(B, FifoSpec(4, lambda _size: EACH_S / 3))),
        ],
    ).run(40.0)
    rates = [answers_per_s(record, s, s + 8.0) for s in (1.0, 12.0, 30.0)]
    assert rates == pytest.approx([80.0, 40.0, 160.0], rel=0.03)


def test_without_its_last_host_a_model_is_refused_and_it_may_come_later() -> None:
    record = Scenario(
        servers={A: FIFO},
        loads=[
            Closed(model="m", workers=8, sizes=fixed(1)),
            Closed(model="late", workers=1, sizes=fixed(1)),
        ],
        changes=[
            (10.0, changes.remove(A.id)),
            (20.0, changes.add(A, FIFO)),
            (20.0, changes.add(endpoint("late"), FIFO)),
        ],
    ).run(30.0)
    assert answers_per_s(record, 11.0, 20.0) == 0.0
    assert answers_per_s(record, 22.0, 30.0) == pytest.approx(40.0, rel=0.03)
    assert {r.refused for r in failed(record)} == {Reason.UNKNOWN_MODEL, Reason.UNAVAILABLE}
    assert record.select("late", until=20.0).answered == []
    assert len(record.select("late", since=21.0).answered) > 80


def test_preemptions_of_a_server_that_is_gone_are_still_counted() -> None:
    scarce, plenty = LlmSpec(kv_blocks=64), LlmSpec()

    def preemptions(*happens, until: float) -> int:
        scenario = Scenario(
            servers={A: scarce, B: plenty},
            loads=[Closed(model="m", workers=20, sizes=fixed(100, 400))],
            changes=happens,
        )
        return scenario.run(until).preemptions[A.id]

    leaves, returns = (30.0, changes.remove(A.id)), (60.0, changes.add(A, scarce))
    first = preemptions(leaves, until=55.0)
    assert first > 0
    assert preemptions(leaves, returns, until=90.0) > first


def test_what_a_host_loses_when_it_fails_is_done_elsewhere() -> None:
    record = Scenario(
        servers={A: FIFO, B: FIFO},
        loads=[BACKLOG],
        changes=[(20.0, changes.fail(A.id)), (22.0, changes.recover(A.id))],
    ).run(40.0)
    assert failed(record) == []
    again = [r for r in record.requests if r.attempts > 1]
    assert len(again) >= 4
    assert {(r.endpoint, r.attempts) for r in again} == {(B.id, 2)}
    assert all(r.started_at >= 20.0 for r in again)


def test_an_answer_that_has_begun_is_not_tried_elsewhere() -> None:
    record = Scenario(
        servers={A: LlmSpec(), B: LlmSpec()},
        loads=[Closed(model="m", workers=8, sizes=fixed(100, 2000))],
        changes=[(10.0, changes.fail(A.id))],
    ).run(60.0)
    cut = failed(record)
    assert [r.attempts for r in cut] == [1] * 4
    assert {r.outcome for r in cut} == {Outcome.FAILURE}


@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_and_goes_every_request_ends_and_nothing_is_left(seed: int) -> None:
    hosts = [endpoint("m", group=group, floor=2, ceiling=8) for group in "abc"]
    other = endpoint("n", group="a", interactive=False)
    engine = LlmSpec(max_sequences=6)
    a, b, c = (host.id for host in hosts)
    simulation = Scenario(
        servers={hosts[0]: engine, hosts[1]: engine, other: FIFO},
        budgets={"a": 6},
        loads=[
            Open(model="m", rate=steady(8.0), sizes=lognormal(300, 80, sigma=1.0), until_s=100.0),
            Closed(model="n", workers=4, sizes=fixed(100), until_s=100.0),
        ],
        scrape=Scrape(every_s=1.0, lag_s=2.0),
        changes=[
            (10.0, changes.add(hosts[2], engine)),
            (20.0, changes.remove(a)),
            (30.0, changes.fail(b)),
            (40.0, changes.add(hosts[0], engine)),
            (45.0, changes.remove(other.id)),
            (50.0, changes.remove(b)),
            (60.0, changes.drain(c)),
            (65.0, changes.add(other, FIFO)),
            (70.0, changes.add(hosts[1], engine)),
            (80.0, changes.fail(a)),
            (81.0, changes.remove(a)),
        ],
    ).simulation(seed)
    record = simulation.run(250.0)
    assert all((r.outcome is None) != (r.refused is None) for r in record.requests)
    assert record.floor_violations == 0
    assert simulation.limiter.admission.live == 0
    assert set(simulation.doors) == set(simulation.limiter.admission.states) == {b, c, other.id}
    for door in simulation.doors.values():
        signal = door.server.signal(record.seconds)
        assert (signal.running, signal.waiting) == (0, 0)
