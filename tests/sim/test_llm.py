"""The closed-form engine: the same outcome as step by step, in far fewer events."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.emulator.chat_engine import ChatEngine, ChatSequence
from forebay.emulator.spec import ChatSpec
from forebay.sim import LlmSpec, Size
from sim.jobs import Bench, Note

OWN = {"share", "prompt_token_s"}

Times = list[tuple[float, float]]  # first token and end of each sequence


def in_closed_form(spec: LlmSpec, arrivals: list[tuple[float, Size]]) -> tuple[Times, float]:
    bench = Bench(spec)
    notes = [bench.submit(size, at) for at, size in arrivals]
    bench.world.run(1e9)
    preemptions = bench.servers[0].signal(0.0).preemptions
    return [(note.first_token_at, note.ended_at) for note in notes], preemptions


def step_by_step(spec: LlmSpec, arrivals: list[tuple[float, Size]]) -> tuple[Times, float]:
    numbers = {key: value for key, value in asdict(spec).items() if key not in OWN}
    cache = spec.kv_blocks * spec.block_tokens
    engine = ChatEngine(ChatSpec(**numbers, max_model_tokens=cache))
    sequences = [ChatSequence(size.input_tokens, size.output_tokens) for _, size in arrivals]
    due = list(zip((at for at, _ in arrivals), sequences, strict=True))
    ends = {}
    now = 0.0
    while due or engine.waiting or engine.running:
        while due and due[0][0] <= now:
            engine.add(due.pop(0)[1], now)
        step_s = engine.start_step()
        if step_s is None:
            now = due[0][0]
            continue
        now += step_s
        ends |= {id(s): now for s in engine.end_step(now) if s.finished}
    times = [(s.first_token_at, ends[id(s)]) for s in sequences]
    return times, engine.counters.preemptions


SIZES = st.builds(Size, st.integers(1, 400), st.integers(1, 120), st.just(1))
SPECS = st.builds(
    LlmSpec,
    max_sequences=st.sampled_from([1, 3, 8]),
    max_step_tokens=st.sampled_from([8, 64, 512]),
    kv_blocks=st.sampled_from([33, 60, 4096]),
    context_token_s=st.sampled_from([0.0, 1e-7, 2e-5]),
    token_s=st.sampled_from([1e-4, 5e-3]),
)
# Not on the grid of step ends, where rounding decides which side an arrival is on.
GAPS = st.floats(0.0, 0.7).map(lambda gap: gap + 1e-5)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(GAPS, SIZES), min_size=1, max_size=25),
    SPECS,
)
def test_the_outcome_is_that_of_single_steps(gaps: list[tuple[float, Size]], spec: LlmSpec) -> None:
    arrivals, now = [], 0.0
    for gap, size in gaps:
        now += gap
        arrivals.append((now, size))
    times, preemptions = in_closed_form(spec, arrivals)
    expected, expected_preemptions = step_by_step(spec, arrivals)
    assert preemptions == expected_preemptions
    for got, want in zip(times, expected, strict=True):
        assert got == pytest.approx(want, rel=1e-9)


def test_a_row_of_decoding_steps_is_one_event() -> None:
    bench = Bench(LlmSpec())
    note = bench.submit(Size(100, 1000))
    events = 0
    while note.ended_at is None:
        bench.world.run(bench.world._due[0][0])
        events += 1
    assert events <= 4


def test_what_is_dropped_leaves_at_the_next_step_and_says_nothing() -> None:
    bench = Bench(LlmSpec(max_sequences=1))
    dropped, next_one = bench.submit(Size(100, 1000)), bench.submit(Size(100, 10), 0.1)
    bench.world.at(1.0, bench.servers[0].abort, dropped)
    bench.world.run(1.02)
    signal = bench.servers[0].signal(1.02)
    assert (signal.running, signal.waiting) == (1, 0)
    bench.world.run(60.0)
    assert dropped.ended_at is None
    assert next_one.ended_at is not None
    assert bench.servers[0].signal(60.0).kv_usage == 0


def test_what_waits_can_be_dropped_too() -> None:
    bench = Bench(LlmSpec(max_sequences=1))
    first, dropped = bench.submit(Size(100, 100)), bench.submit(Size(100, 10), 0.1)
    bench.world.at(0.5, bench.servers[0].abort, dropped)
    bench.world.run(60.0)
    assert first.ended_at is not None
    assert dropped.ended_at is None


def test_metrics_tell_of_the_queue_and_of_the_cache_as_it_fills() -> None:
    bench = Bench(LlmSpec(max_sequences=2, kv_blocks=64))
    for _ in range(3):
        bench.submit(Size(160, 320))
    bench.world.run(1.0)
    early = bench.servers[0].signal(1.0)
    bench.world.run(3.0)
    late = bench.servers[0].signal(3.0)
    assert (early.running, early.waiting, early.saturated) == (2, 1, True)
    assert 20 / 64 < early.kv_usage < late.kv_usage <= 60 / 64


def test_what_could_never_run_is_refused() -> None:
    bench = Bench(LlmSpec(kv_blocks=10))
    for size in (Size(100, 100), Size(100, 0)):
        with pytest.raises(ValueError, match=r"tokens|fit"):
            bench.servers[0].submit(Note(bench.world, size))
