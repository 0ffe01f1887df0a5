from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.virtual_time import closed_loop, run
from forebay.emulator.chat_engine import ChatSequence
from forebay.emulator.embedding_engine import EmbeddingJob
from forebay.emulator.faults import EngineName
from forebay.emulator.gpu import Gpu
from forebay.emulator.spec import ChatSpec, EmbeddingSpec, EmulatorSpec, GpuSpec

# Round numbers: a chat step takes 10 ms, a full embedding batch of 10 texts 100 ms.
ROUND = GpuSpec(
    chat=ChatSpec(
        weights_s=0.009, context_token_s=0, token_s=0, overhead_s=0.001, prefill_overhead_s=0
    ),
    embedding=EmbeddingSpec(
        weights_s=0,
        token_s=0.00009,
        overhead_s=0.01,
        pad_tokens=100,
        max_batch_tokens=1000,
        max_input_tokens=1000,
    ),
    chat_share=0.25,
)
FULL_BATCH = (100,) * 10


def test_engines_that_are_alone_run_at_full_speed() -> None:
    chat = run(Gpu(ROUND), [(0, ChatSequence(1, 3))])
    assert [event.at for event in chat] == pytest.approx([0.01, 0.02, 0.03])
    embedding = run(Gpu(ROUND), [(0, EmbeddingJob(FULL_BATCH))])
    assert [event.at for event in embedding] == pytest.approx([0.1])


def test_beside_a_full_embedding_batch_chat_keeps_its_share() -> None:
    gpu = Gpu(ROUND)
    sequence = ChatSequence(1, 3)
    events = run(gpu, [(0, EmbeddingJob(FULL_BATCH)), (0, sequence)])
    tokens = [event.at for event in events if event.work is sequence]
    assert tokens == pytest.approx([0.04, 0.08, 0.12])


def test_the_embedding_batch_gets_what_chat_leaves() -> None:
    gpu = Gpu(ROUND)
    job = EmbeddingJob(FULL_BATCH)
    events = run(gpu, [(0, job), (0, ChatSequence(1, 1000))])
    assert [event.at for event in events if event.work is job] == pytest.approx([0.1 / 0.75])


def test_half_a_batch_contends_a_quarter() -> None:
    gpu = Gpu(ROUND)
    job, sequence = EmbeddingJob((100,) * 5), ChatSequence(1, 20)
    events = run(gpu, [(0, job), (0, sequence)])
    first_token = next(event.at for event in events if event.work is sequence)
    assert first_token == pytest.approx(0.01 / (1 - 0.25 * 0.75))
    embedded = next(event.at for event in events if event.work is job)
    assert embedded == pytest.approx(0.055 / (1 - 0.25 * 0.25))


def test_sharing_begins_and_ends_in_the_middle_of_a_step() -> None:
    spec = ROUND.model_copy(update={"chat": ROUND.chat.model_copy(update={"weights_s": 0.999})})
    gpu = Gpu(spec)  # a chat step takes 1 s
    events = run(gpu, [(0, ChatSequence(1, 1)), (0.5, EmbeddingJob(FULL_BATCH))])
    embedded_at, token_at = (event.at for event in events)
    assert embedded_at == pytest.approx(0.5 + 0.1 / 0.75)
    # Three quarters of that stretch were lost to chat.
    assert token_at == pytest.approx(1 + 0.75 * 0.1 / 0.75)


def test_a_slowed_engine_takes_longer_steps_from_the_next_step_on() -> None:
    factor = {EngineName.CHAT: 1.0, EngineName.EMBEDDING: 1.0}
    gpu = Gpu(ROUND, slowdown=factor.__getitem__)
    gpu.submit(ChatSequence(1, 3), 0)
    factor[EngineName.CHAT] = 5.0
    events = run(gpu)
    assert [event.at for event in events] == pytest.approx([0.01, 0.06, 0.11])


def test_time_does_not_run_backwards_between_events() -> None:
    gpu = Gpu(ROUND)
    events = run(gpu, [(0.01 * i, ChatSequence(5, 7)) for i in range(20)])
    assert [event.at for event in events] == sorted(event.at for event in events)


WORK = st.one_of(
    st.builds(ChatSequence, st.integers(1, 40), st.integers(1, 8)),
    st.builds(EmbeddingJob, st.lists(st.integers(1, 300), min_size=1, max_size=12).map(tuple)),
)
ARRIVALS = st.lists(st.tuples(st.floats(0, 0.3), WORK), min_size=1, max_size=12)


@given(ARRIVALS)
def test_all_work_is_done_exactly_once(arrivals: list) -> None:
    gpu = Gpu(ROUND)
    events = run(gpu, sorted(arrivals, key=lambda arrival: arrival[0]))
    for _, work in arrivals:
        got = sum(event.work is work for event in events)
        assert got == (work.output_tokens if isinstance(work, ChatSequence) else 1)
        assert work.finished
    assert gpu.chat.used_blocks == 0
    assert not gpu.embedding.waiting


@given(st.lists(st.floats(0.0001, 0.05), max_size=30))
def test_it_does_not_matter_how_often_the_model_is_looked_at(pauses: list[float]) -> None:
    def arrivals() -> list:
        return [
            (0, ChatSequence(30, 9)),
            (0.013, EmbeddingJob((90,) * 7)),
            (0.02, ChatSequence(3, 5)),
            (0.021, EmbeddingJob((50,) * 25)),
        ]

    rarely = run(Gpu(ROUND), arrivals())
    gpu, now, often = Gpu(ROUND), 0.0, []
    todo = arrivals()
    looks = [now := now + pause for pause in pauses]
    for at, work in sorted([*todo, *((at, None) for at in looks)], key=lambda look: look[0]):
        often += gpu.advance(at) if work is None else gpu.submit(work, at)
    often += run(gpu)
    assert [event.at for event in often] == pytest.approx([event.at for event in rarely])


@pytest.mark.parametrize("chats", [1, 2, 4])
@pytest.mark.parametrize("think_s", [0.0, 0.5])
class TestTheDefaultHost:
    """The promises at the top of `forebay.emulator.spec`."""

    def test_answers_chat_that_is_alone_in_60_ms(self, chats: int, think_s: float) -> None:
        load = closed_loop(EmulatorSpec(), chats=chats, think_s=think_s)
        assert min(load.first_token_s) == pytest.approx(0.060, rel=0.1)

    def test_lets_an_embedding_storm_slow_chat_threefold(self, chats: int, think_s: float) -> None:
        alone = closed_loop(EmulatorSpec(), chats=chats, think_s=think_s)
        storm = closed_loop(EmulatorSpec(), chats=chats, think_s=think_s, storm=32)
        assert storm.first_token_p95_s >= 3 * alone.first_token_p95_s

    @pytest.mark.parametrize("storm", [1, 2, 3, 4])
    def test_hardly_notices_a_few_embedding_requests(
        self, chats: int, think_s: float, storm: int
    ) -> None:
        alone = closed_loop(EmulatorSpec(), chats=chats, think_s=think_s)
        few = closed_loop(EmulatorSpec(), chats=chats, think_s=think_s, storm=storm)
        assert few.first_token_p95_s <= 1.4 * alone.first_token_p95_s

    def test_embeds_nearly_as_much_with_four_requests_as_in_a_storm(
        self, chats: int, think_s: float
    ) -> None:
        storm = closed_loop(EmulatorSpec(), storm=32)
        four = closed_loop(EmulatorSpec(), chats=chats, think_s=think_s, storm=4)
        assert four.embeddings_per_s >= 0.6 * storm.embeddings_per_s


def test_the_default_host_generates_a_token_in_12_ms() -> None:
    sequence = ChatSequence(100, 50)
    times = [event.at for event in run(Gpu(EmulatorSpec()), [(0, sequence)])]
    assert times[-1] - times[0] == pytest.approx(49 * 0.012, rel=0.05)
