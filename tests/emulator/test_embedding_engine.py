from __future__ import annotations

import pytest

from emulator.virtual_time import closed_loop, run
from forebay.emulator.embedding_engine import EmbeddingJob
from forebay.emulator.gpu import Gpu
from forebay.emulator.spec import EmbeddingSpec, GpuSpec

SPEC = EmbeddingSpec(
    weights_s=0.02,
    token_s=1e-4,
    overhead_s=0.01,
    pad_tokens=100,
    max_batch_tokens=1000,
    max_input_tokens=500,
)


def gpu() -> Gpu:
    return Gpu(GpuSpec(embedding=SPEC))


@pytest.mark.parametrize(("texts", "seconds"), [(1, 0.03), (2, 0.03), (5, 0.06), (10, 0.11)])
def test_a_step_takes_what_its_formula_says(texts: int, seconds: float) -> None:
    events = run(gpu(), [(0, EmbeddingJob((70,) * texts))])
    assert [event.at for event in events] == pytest.approx([seconds])


def test_a_batch_holds_no_more_tokens_than_it_may() -> None:
    events = run(gpu(), [(0, EmbeddingJob((100,) * 25))])
    assert [event.at for event in events] == pytest.approx([0.11 + 0.11 + 0.06])


def test_long_texts_are_truncated() -> None:
    events = run(gpu(), [(0, EmbeddingJob((100_000,)))])
    assert [event.at for event in events] == pytest.approx([0.06])


def test_texts_are_computed_in_the_order_in_which_they_came() -> None:
    first, second = EmbeddingJob((100,) * 15), EmbeddingJob((100,) * 2)
    events = run(gpu(), [(0, first), (0, second)])
    # The second request rides along with the rest of the first.
    assert [(event.work, event.at) for event in events] == [
        (first, pytest.approx(0.11 + 0.08)),
        (second, pytest.approx(0.11 + 0.08)),
    ]


def test_throughput_saturates_within_a_few_requests() -> None:
    rates = {n: closed_loop(GpuSpec(), storm=n).embeddings_per_s for n in (1, 4, 32, 64)}
    assert rates[4] >= 0.75 * rates[32]
    assert rates[64] == pytest.approx(rates[32], rel=0.05)
    full_step_s = 16384 * 2e-5 + 0.03
    assert rates[32] == pytest.approx(8 / full_step_s, rel=0.05)


def test_an_aborted_request_leaves_the_queue_and_its_step_ends() -> None:
    model = gpu()
    aborted, other = EmbeddingJob((100,) * 25), EmbeddingJob((100,))
    model.submit(aborted, 0)
    model.submit(other, 0)
    model.abort(aborted, 0.01)
    assert len(model.embedding.waiting) == 1
    events = run(model)
    assert [(event.work, event.at) for event in events] == [(other, pytest.approx(0.11 + 0.03))]
    assert model.embedding.counters.aborted == 1
    assert model.embedding.counters.texts == 11
