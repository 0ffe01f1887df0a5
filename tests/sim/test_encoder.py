"""The embedding engine: batches capped in tokens, requests that end with their last text."""

from __future__ import annotations

import pytest

from forebay.sim import EncoderSpec, Size
from sim.jobs import Bench

SPEC = EncoderSpec(
    weights_s=0.01, token_s=1e-4, overhead_s=0.01, pad_tokens=10, max_batch_tokens=100
)
FULL_S = 0.02


def test_texts_of_several_requests_share_a_batch_up_to_its_tokens() -> None:
    bench = Bench(SPEC)
    first = bench.submit(Size(20, texts=2))
    others = [bench.submit(Size(40, texts=4), 0.001) for _ in range(3)]
    bench.world.run(1.0)
    assert first.ended_at == pytest.approx(FULL_S)
    # Ten texts fit: two whole requests, and half of the third, which ends a batch later.
    assert [note.ended_at for note in others] == pytest.approx([2 * FULL_S, 2 * FULL_S, 3 * FULL_S])


def test_a_short_text_takes_what_it_is_padded_to_and_a_long_one_a_batch() -> None:
    bench = Bench(EncoderSpec(weights_s=0, token_s=1e-3, overhead_s=0.01, pad_tokens=64))
    note = bench.submit(Size(3))
    bench.world.run(1.0)
    assert note.ended_at == pytest.approx(0.074)
    bench = Bench(SPEC)
    note = bench.submit(Size(5000))
    bench.world.run(1.0)
    assert note.ended_at == pytest.approx(FULL_S)


def test_what_is_dropped_is_not_computed_any_more() -> None:
    bench = Bench(SPEC)
    bench.submit(Size(100, texts=10))
    dropped, kept = bench.submit(Size(300, texts=30), 0.001), bench.submit(Size(10), 0.002)
    bench.world.at(0.03, bench.servers[0].abort, dropped)
    bench.world.run(1.0)
    assert dropped.ended_at is None
    assert kept.ended_at == pytest.approx(3 * FULL_S)


def test_metrics_tell_of_texts_that_wait() -> None:
    bench = Bench(SPEC)
    for _ in range(4):
        bench.submit(Size(100, texts=10))
    bench.world.run(0.01)
    signal = bench.servers[0].signal(0.01)
    assert (signal.waiting, signal.waiting_unit, signal.saturated) == (30, "inputs", True)
