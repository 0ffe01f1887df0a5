"""Who asks, when, and for how much."""

from __future__ import annotations

import itertools
from math import exp, log
from random import Random
from statistics import fmean, median, stdev

import pytest

from forebay.errors import ConfigError
from forebay.sim import (
    Closed,
    Conversations,
    FifoSpec,
    LlmSpec,
    Load,
    Open,
    Record,
    Scenario,
    Size,
    Trace,
    endpoint,
    fixed,
    lognormal,
    mix,
    shift,
    steady,
    steps,
    traces,
    wave,
)

M = endpoint("m", ceiling=1000)


def run(load: Load, seconds: float, *, service_s: float = 0.01) -> Record:
    server = FifoSpec(1000, lambda _size: service_s)
    return Scenario(servers={M: server}, loads=[load]).run(seconds, seed=1)


def counts(record: Record, *bounds: float) -> list[int]:
    pairs = itertools.pairwise(bounds)
    return [sum(a <= r.asked_at < b for r in record.requests) for a, b in pairs]


def test_open_arrivals_are_poisson() -> None:
    record = run(Open(model="m", rate=steady(10), sizes=fixed(1)), 2000)
    at = [r.asked_at for r in record.requests]
    gaps = [b - a for a, b in itertools.pairwise(at)]
    assert fmean(gaps) == pytest.approx(0.1, rel=0.02)
    assert stdev(gaps) == pytest.approx(0.1, rel=0.03)


def test_a_rate_may_move_in_steps_and_waves() -> None:
    parts = steps((100, 10), (200, 50), (300, 0))
    record = run(Open(model="m", rate=parts, sizes=fixed(1)), 400)
    assert counts(record, 0, 100, 200, 300, 400) == pytest.approx([0, 1000, 5000, 0], rel=0.08)
    record = run(Open(model="m", rate=wave(0, 20, 400), sizes=fixed(1)), 400)
    quarter, half = counts(record, 0, 100, 300)
    assert half > 8 * quarter


def test_an_open_load_begins_and_ends_when_it_says() -> None:
    load = Open(model="m", rate=steady(10), sizes=fixed(1), since_s=50, until_s=70)
    record = run(load, 100)
    assert counts(record, 0, 50, 70, 100) == [0, pytest.approx(200, abs=45), 0]


def test_a_closed_load_has_so_many_in_flight_and_no_more() -> None:
    record = run(Closed(model="m", workers=7, sizes=fixed(1)), 10, service_s=0.5)
    assert record.peak_inflight == {"m@gpu": 7}
    assert len(record.requests) == 7 * 21


def test_thinking_workers_ask_less() -> None:
    record = run(Closed(model="m", workers=50, sizes=fixed(1), think_s=4.0), 1000, service_s=1.0)
    assert len(record.requests) == pytest.approx(1000 * 50 / 5, rel=0.03)


def test_a_backlog_ends() -> None:
    record = run(Closed(model="m", workers=7, sizes=fixed(1), total=100), 60)
    assert len(record.requests) == 100


def test_a_conversations_prompt_holds_what_was_said_before() -> None:
    load = Conversations(
        model="m", users=1, turns=3, sizes=fixed(100, 50), think_s=1.0, most_tokens=10_000
    )
    record = Scenario(servers={M: LlmSpec()}, loads=[load]).run(60, seed=1)
    prompts = [r.size.input_tokens for r in record.requests[:7]]
    assert prompts == [100, 250, 400, 100, 250, 400, 100]


def test_a_conversation_that_gets_too_long_begins_anew() -> None:
    load = Conversations(
        model="m", users=1, turns=9, sizes=fixed(100, 50), think_s=1.0, most_tokens=350
    )
    record = Scenario(servers={M: LlmSpec()}, loads=[load]).run(60, seed=1)
    assert [r.size.input_tokens for r in record.requests[:4]] == [100, 250, 100, 250]


def test_a_trace_is_asked_row_by_row(tmp_path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:15:51.2224670,9000,55\n"
        "2023-11-16 18:16:51.2224670,91,0\n"
    )
    rows = traces.azure(path, most_tokens=4000)
    record = run(Trace(model="m", rows=rows, since_s=10), 60)
    asked = [(r.asked_at, r.size) for r in record.requests]
    assert asked == [(10.0, Size(374, 44)), (pytest.approx(14.314579), Size(396, 109))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,tokens\n1,2\n", "line 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,many,3\n", "line 2"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_its_line(tmp_path, text, message) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        list(traces.azure(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        list(traces.azure(tmp_path / "none.csv"))


def test_lognormal_sizes_scatter_around_their_median() -> None:
    rng = Random(1)
    drawn = [lognormal(200, 50, sigma=1.5, most=10**6)(rng, 0.0) for _ in range(20_000)]
    assert median(s.input_tokens for s in drawn) == pytest.approx(200, rel=0.05)
    logs = [log(s.input_tokens) for s in drawn]
    assert stdev(logs) == pytest.approx(1.5, rel=0.02)
    assert exp(fmean(log(s.output_tokens) for s in drawn)) == pytest.approx(50, rel=0.05)
    assert lognormal(200, sigma=0.0, texts=4)(rng, 0.0) == Size(200, 0, 4)


def test_mixes_may_shift() -> None:
    rng = Random(1)
    sizes = shift(10.0, fixed(1), mix((1, fixed(2)), (3, fixed(3))))
    assert sizes(rng, 9.9) == Size(1)
    late = [sizes(rng, 10.0).input_tokens for _ in range(4000)]
    assert late.count(3) / late.count(2) == pytest.approx(3, rel=0.1)
