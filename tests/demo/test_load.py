"""A phase puts the load on that it says, measures it, and leaves nothing of it behind."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from forebay.demo.asking import Target
from forebay.demo.load import LoadFailed, Phase, PhaseResult, Workload, run_phase
from forebay.emulator import (
    ChatSpec,
    EmbeddingSpec,
    Emulator,
    EmulatorSpec,
    EngineName,
    Host,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

SPEC = EmulatorSpec(
    chat=ChatSpec(weights_s=0.001, token_s=0, overhead_s=1e-6, prefill_overhead_s=0),
    embedding=EmbeddingSpec(weights_s=0.005, token_s=0, overhead_s=1e-6, max_batch_tokens=8192),
)
WORKLOAD = Workload(
    chat_answer_tokens=8, bulk_workers=3, bulk_answer_tokens=(10, 20), embedding_workers=2
)


@asynccontextmanager
async def emulated() -> AsyncIterator[Host]:
    async with Emulator(SPEC).running() as host:
        yield host


async def load(host: Host, *, storm: bool, measure_s: float = 0.5) -> PhaseResult:
    target = Target(host.chat_url, host.embed_url, host.spec.chat.model, host.spec.embedding.model)
    return await run_phase(
        Phase(target, storm=storm), WORKLOAD, random.Random(1), warm_up_s=0.1, measure_s=measure_s
    )


async def test_chat_alone_is_alone() -> None:
    async with emulated() as host:
        result = await load(host, storm=False)
        record = host.record()
    assert result.bulk_tokens_per_s == result.embeddings_per_s == 0
    assert record["gpu"]["max_inflight"] == 1
    assert record["embedding"]["requests"] == 0
    # The questions of the warm-up were asked too, and do not count.
    assert 0 < len(result.answers) < record["chat"]["requests"]


async def test_a_storm_keeps_every_worker_busy_beside_the_chat() -> None:
    async with emulated() as host:
        result = await load(host, storm=True)
        record = host.record()
    assert record["chat"]["max_inflight"] == WORKLOAD.bulk_workers + 1
    assert record["embedding"]["max_inflight"] == WORKLOAD.embedding_workers
    assert result.answers
    assert result.refused == len(result.failures) == 0


async def test_a_phase_ends_when_all_it_asked_for_is_answered() -> None:
    async with emulated() as host:
        await load(host, storm=True)
        record = host.record()["gpu"]
    assert record["inflight"] == 0
    assert record["finished"] == record["requests"]


async def test_rates_are_what_the_engine_did_in_the_measured_time() -> None:
    async with emulated() as host:
        result = await load(host, storm=True, measure_s=1.0)
        record = host.record()
        tokens = record["chat"]["engine"]["output_tokens"] / record["now_s"]
        texts = 6 * record["embedding"]["finished"] / record["now_s"]
    assert 0.5 * tokens < result.bulk_tokens_per_s < 1.5 * tokens
    assert 0.5 * texts < result.embeddings_per_s < 1.5 * texts


async def test_failures_are_counted_and_the_load_goes_on() -> None:
    async with emulated() as host:
        host.faults.add(Status(engine=EngineName.EMBEDDING, status=500, next=2))
        result = await load(host, storm=True)
    assert len(result.failures) == 2
    assert result.embeddings_per_s > 0


async def test_a_model_that_never_answers_makes_the_phase_fail_with_the_reason() -> None:
    async with emulated() as host:
        host.faults.add(Status(engine=EngineName.EMBEDDING, status=500, message="out of order"))
        with pytest.raises(LoadFailed, match=r"0 embedding requests .* answered 500: .*out of"):
            await load(host, storm=True)
