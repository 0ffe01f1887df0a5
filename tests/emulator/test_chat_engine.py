from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.virtual_time import run
from forebay.emulator.chat_engine import ChatSequence
from forebay.emulator.gpu import Gpu
from forebay.emulator.spec import ChatSpec, GpuSpec


def gpu(**chat: float) -> Gpu:
    return Gpu(GpuSpec(chat=ChatSpec(**chat)))


def test_a_step_takes_what_its_formula_says() -> None:
    numbers = {"weights_s": 0.01, "context_token_s": 1e-5, "token_s": 1e-3, "overhead_s": 0.002}
    model = gpu(**numbers, prefill_overhead_s=0.03)
    times = [event.at for event in run(model, [(0, ChatSequence(100, 3))])]
    prefill_s = 100 * 1e-3 + 0.002 + 0.03  # bound by arithmetic
    first_s = 0.01 + 101 * 1e-5 + 0.002  # bound by memory: one token, over a context of 101
    second_s = 0.01 + 102 * 1e-5 + 0.002
    assert times == pytest.approx([prefill_s, prefill_s + first_s, prefill_s + first_s + second_s])


@pytest.mark.parametrize("sequences", [1, 4, 16, 64])
def test_decoding_throughput_follows_the_roofline(sequences: int) -> None:
    numbers = {"weights_s": 0.01, "context_token_s": 0, "token_s": 1e-3, "overhead_s": 0.002}
    model = gpu(**numbers, prefill_overhead_s=0, max_sequences=64)
    events = run(model, [(0.0, ChatSequence(1, 1000)) for _ in range(sequences)])
    # The first sequence starts alone, and ends one step before the others.
    steps = sorted({event.at for event in events})[100:900]
    tokens_per_s = sum(steps[0] < event.at <= steps[-1] for event in events) / (
        steps[-1] - steps[0]
    )
    assert tokens_per_s == pytest.approx(
        sequences / (max(0.01, sequences * 1e-3) + 0.002), rel=0.01
    )


def test_tokens_per_second_bend_softly() -> None:
    def tokens_per_s(sequences: int) -> float:
        events = run(gpu(), [(0.0, ChatSequence(100, 200)) for _ in range(sequences)])
        return len(events) / events[-1].at

    rates = [tokens_per_s(n) for n in (2, 4, 8, 16, 32, 64)]
    gains = [after / before for before, after in pairwise(rates)]
    assert rates == sorted(rates)
    assert gains == sorted(gains, reverse=True)


def test_long_prompts_are_prefilled_in_chunks_that_stall_decoding() -> None:
    model = gpu(max_step_tokens=1000, token_s=1e-4, context_token_s=0, prefill_overhead_s=0)
    short, long = ChatSequence(1, 50), ChatSequence(2500, 1)
    events = run(model, [(0, short), (0.001, long)])
    times = [event.at for event in events if event.work is short]
    gaps = [after - before for before, after in pairwise(times)]
    chunk_s = 0.1 + 0.002
    assert gaps[:2] == pytest.approx([chunk_s, chunk_s])  # the decoding token is in the budget
    assert gaps[2] == pytest.approx(502 * 1.003e-4, rel=0.05)
    assert gaps[3:] == pytest.approx([0.012] * (len(gaps) - 3))
    assert long.first_token_at == pytest.approx(sum(gaps[:3]) + times[0])


def test_sequences_start_in_the_order_in_which_they_came() -> None:
    model = gpu(max_sequences=3)
    sequences = [ChatSequence(10, 5 + i % 4) for i in range(12)]
    run(model, [(0.001 * i, sequence) for i, sequence in enumerate(sequences)])
    starts = [sequence.first_token_at for sequence in sequences]
    assert starts == sorted(starts)


def test_no_more_than_max_sequences_run() -> None:
    model = gpu(max_sequences=3)
    for _ in range(10):
        model.submit(ChatSequence(10, 5), 0)
    most = 0
    while (at := model.next_at()) is not None:
        most = max(most, len(model.chat.running))
        model.advance(at)
    assert most == 3


def test_a_head_that_does_not_fit_is_not_overtaken() -> None:
    model = gpu(kv_blocks=10, block_tokens=10, max_model_tokens=100)
    first, big, small = ChatSequence(50, 10), ChatSequence(90, 2), ChatSequence(10, 2)
    run(model, [(0, first), (0.001, big), (0.002, small)])
    assert first.last_token_at < big.first_token_at <= small.first_token_at


def test_the_youngest_is_preempted_and_recomputed() -> None:
    model = gpu(kv_blocks=10, block_tokens=10, max_model_tokens=100)
    old, young = ChatSequence(41, 50), ChatSequence(41, 50)
    events = run(model, [(0, old), (0.001, young)])
    assert model.chat.counters.preemptions == 1
    assert sum(event.work is old for event in events) == 50
    assert sum(event.work is young for event in events) == 50
    times = [event.at for event in events if event.work is young]
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) > 0.3  # until the old one had left
    old_times = [event.at for event in events if event.work is old]
    assert max(b - a for a, b in pairwise(old_times[2:])) < 0.02


def test_a_sequence_that_could_never_fit_is_not_taken() -> None:
    model = gpu()
    taken = ChatSequence(1, 3)
    model.submit(taken, 0)
    with pytest.raises(ValueError, match="max_model_tokens 8192"):
        model.submit(ChatSequence(8000, 193), 10)
    assert [event.work for event in run(model)] == [taken] * 3


def test_an_aborted_sequence_frees_its_blocks_with_the_step() -> None:
    model = gpu()
    sequence = ChatSequence(100, 100)
    model.submit(sequence, 0)
    model.advance(0.1)
    model.abort(sequence, 0.1)
    assert model.chat.used_blocks > 0
    step_ends_at = model.next_at()
    assert step_ends_at < 0.1 + 0.0125
    assert model.advance(step_ends_at) == []
    assert (model.chat.used_blocks, model.chat.running, model.next_at()) == (0, [], None)
    assert model.chat.counters.aborted == 1


def test_an_aborted_sequence_that_waits_leaves_the_queue_at_once() -> None:
    model = gpu(max_sequences=1)
    running, waiting = ChatSequence(1, 5), ChatSequence(1, 5)
    model.submit(running, 0)
    model.submit(waiting, 0)
    model.abort(waiting, 0.001)
    assert not model.chat.waiting
    assert [event.work for event in run(model)] == [running] * 5


def test_aborting_twice_or_after_the_end_changes_nothing() -> None:
    model = gpu()
    sequence = ChatSequence(1, 1)
    end = run(model, [(0, sequence)])[-1].at
    model.abort(sequence, end)
    other = ChatSequence(1, 9)
    model.submit(other, end)
    model.abort(other, end)
    model.abort(other, end)
    run(model)
    assert model.chat.counters.aborted == 1


SEQUENCE = st.builds(ChatSequence, st.integers(1, 60), st.integers(1, 60))


@given(st.lists(st.tuples(st.floats(0, 1), SEQUENCE, st.booleans()), min_size=1, max_size=15))
def test_the_cache_is_never_over_full_and_nothing_is_lost(arrivals: list) -> None:
    model = gpu(
        kv_blocks=30, block_tokens=4, max_model_tokens=120, max_step_tokens=32, max_sequences=8
    )
    tokens: dict[ChatSequence, int] = {}
    plan = sorted(arrivals, key=lambda arrival: arrival[0])
    looks = [*plan, *((at + 0.05, sequence, None) for at, sequence, aborts in plan if aborts)]
    for at, sequence, aborts in sorted(looks, key=lambda look: look[0]):
        while (step_at := model.next_at()) is not None and step_at <= at:
            count(model.advance(step_at), tokens)
            check_cache(model)
        count((model.abort if aborts is None else model.submit)(sequence, at), tokens)
        check_cache(model)
    while (step_at := model.next_at()) is not None:
        count(model.advance(step_at), tokens)
        check_cache(model)
    assert model.chat.used_blocks == 0
    assert not model.chat.running
    assert not model.chat.waiting
    for _, sequence, _ in arrivals:
        assert sequence.finished != sequence.aborted
        assert tokens.get(sequence, 0) == sequence.generated


def count(events: list, tokens: dict) -> None:
    for event in events:
        tokens[event.work] = tokens.get(event.work, 0) + 1


def check_cache(model: Gpu) -> None:
    chat = model.chat
    held = [sequence.blocks for sequence in (*chat.running, *chat.waiting)]
    assert chat.used_blocks == sum(held) <= chat.spec.kv_blocks
    for sequence in chat.running:
        assert sequence.blocks * chat.spec.block_tokens >= sequence.cached
