"""What shares a GPU: engines slow each other down as the emulated GPU has it, and strangers too."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from forebay.emulator.chat_engine import ChatSequence
from forebay.emulator.embedding_engine import EmbeddingJob
from forebay.emulator.gpu import Gpu as EmulatedGpu
from forebay.emulator.spec import GpuSpec
from forebay.sim import EncoderSpec, Gpu, LlmSpec, SharedSpec, Size, World, sharing
from sim.jobs import Bench

SECOND = SharedSpec(lambda size: float(size.input_tokens))


def test_engines_on_one_gpu_slow_each_other_down_as_on_the_emulated_one() -> None:
    rng = Random(3)
    chats = [
        (rng.uniform(0, 20), Size(rng.randint(20, 900), rng.randint(2, 60))) for _ in range(40)
    ]
    embeds = [(rng.uniform(0, 20), Size(16 * rng.choice((40, 200)), texts=16)) for _ in range(120)]

    bench = Bench(LlmSpec(), EncoderSpec())
    notes = [bench.submit(size, at) for at, size in chats]
    notes += [bench.submit(size, at, server=1) for at, size in embeds]
    bench.world.run(1000.0)

    gpu = EmulatedGpu(GpuSpec())
    work = [(at, ChatSequence(size.input_tokens, size.output_tokens)) for at, size in chats]
    work += [(at, EmbeddingJob((size.input_tokens // 16,) * 16)) for at, size in embeds]
    events = [e for at, w in sorted(work, key=lambda pair: pair[0]) for e in gpu.submit(w, at)]
    events += gpu.advance(1000.0)
    ends = defaultdict(float)
    for event in events:
        ends[id(event.work)] = max(ends[id(event.work)], event.at)

    assert [note.ended_at for note in notes] == pytest.approx([ends[id(w)] for _, w in work])


@pytest.mark.parametrize(("stretch", "own_stretch"), [(1.65, 1.25), (4.0, 4 / 3), (2.0, 2.0)])
def test_sharing_is_calibrated_from_how_much_two_engines_slow_each_other_down(
    stretch: float, own_stretch: float
) -> None:
    load, share = sharing(stretch=stretch, own_stretch=own_stretch)
    world = World()
    gpu = Gpu(world, world.rng("gpu"))
    ends: dict[str, float] = {}
    chat = gpu.occupy(load=1.0)
    gpu.start(1.0, lambda: ends.setdefault("other", world.now), load=load, share=share)
    world.run(9.0)
    gpu.stop(chat)
    gpu.occupy(load, share)
    gpu.start(1.0, lambda: ends.setdefault("chat", world.now - 9.0))
    world.run(20.0)
    assert ends == {"other": pytest.approx(own_stretch), "chat": pytest.approx(stretch)}


@pytest.mark.parametrize(("stretch", "own_stretch"), [(1.0, 2.0), (4.0, 4.0)])
def test_what_is_no_sharing_is_refused(stretch: float, own_stretch: float) -> None:
    with pytest.raises(ValueError, match="is not sharing"):
        sharing(stretch=stretch, own_stretch=own_stretch)


def test_half_the_capacity_takes_twice_as_long_also_in_the_middle_of_work() -> None:
    bench = Bench(SECOND)
    note = bench.submit(Size(4))
    bench.world.at(2.0, setattr, bench.gpu, "capacity", 0.5)
    bench.world.run(10.0)
    assert note.ended_at == pytest.approx(6.0)


def test_a_stranger_takes_its_share_until_it_leaves() -> None:
    bench = Bench(SECOND)
    note = bench.submit(Size(4))
    stranger = bench.gpu.occupy(load=1.0, share=3.0)
    bench.world.at(4.0, bench.gpu.stop, stranger)
    bench.world.run(10.0)
    assert note.ended_at == pytest.approx(4.0 + 3.0)


def test_a_small_load_beside_a_full_one_costs_little() -> None:
    bench = Bench(SECOND)
    note = bench.submit(Size(1))
    bench.gpu.occupy(load=0.1, share=1.0)
    bench.world.run(10.0)
    assert note.ended_at == pytest.approx(1 / 0.95)


def test_drift_makes_everything_slower_minute_by_minute() -> None:
    bench = Bench(SECOND)
    bench.world.at(60.0, bench.gpu.drift, 0.01)
    before, after = bench.submit(Size(1), 30.0), bench.submit(Size(1), 660.0)
    bench.world.run(700.0)
    assert before.ended_at == pytest.approx(31.0)
    assert after.ended_at == pytest.approx(660.0 + 1.01**10)


def test_noise_scatters_and_keeps_the_mean() -> None:
    world = World(5)
    gpu = Gpu(world, world.rng("gpu"))
    gpu.noise = 0.3
    times = [gpu.slowness() for _ in range(20_000)]
    assert sum(times) / len(times) == pytest.approx(1.0, rel=0.01)
    assert min(times) < 0.6
    assert max(times) > 1.6
