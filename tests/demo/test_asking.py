"""The client of the demonstration times honestly and behaves well when it is refused."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest

from forebay.demo.asking import Client, RequestFailed, Target
from forebay.emulator import (
    ChatSpec,
    Cut,
    Emulator,
    EmulatorSpec,
    EngineName,
    Fault,
    Garbage,
    Host,
    Html,
    Reset,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.anyio

# 20 ms for the prompt, then 5 ms a token.
SPEC = EmulatorSpec(
    chat=ChatSpec(weights_s=0.005, token_s=0, overhead_s=1e-6, prefill_overhead_s=0.015)
)


@asynccontextmanager
async def client_of(*faults: Fault) -> AsyncIterator[tuple[Client, Host]]:
    async with Emulator(SPEC).running() as host, aiohttp.ClientSession() as session:
        for fault in faults:
            host.faults.add(fault)
        target = Target(
            host.chat_url, host.embed_url, host.spec.chat.model, host.spec.embedding.model
        )
        yield Client(session, target), host


async def test_an_answer_is_timed_to_its_first_token_its_tokens_and_its_end() -> None:
    async with client_of() as (client, _):
        asked_at = time.monotonic()
        answer = await client.chat("hello", 20)
        took_s = time.monotonic() - asked_at
    assert answer.first_token_s >= 0.02
    assert answer.total_s >= 0.02 + 19 * 0.005
    assert answer.first_token_s + 19 * answer.output_token_s <= answer.total_s <= took_s


async def test_generated_tokens_are_counted_by_the_engine() -> None:
    async with client_of() as (client, host):
        tokens = await client.generate("hello", 20, None)
        assert tokens == host.record()["chat"]["engine"]["output_tokens"] == 20


async def test_embedded_texts_are_counted() -> None:
    async with client_of() as (client, _):
        assert await client.embed(["one", "two", "three"]) == 3


async def test_a_refusal_is_tried_again_when_it_says_and_counts_in_the_time() -> None:
    refusal = Status(engine=EngineName.CHAT, status=429, retry_after="1", next=1)
    async with client_of(refusal) as (client, host):
        answer = await client.chat("hello", 4)
        assert host.record()["chat"]["requests"] == 2
    assert client.refused == 1
    assert answer.first_token_s >= 1.0


ASK: dict[str, Callable[[Client], object]] = {
    "chat": lambda client: client.chat("hello", 4),
    "generate": lambda client: client.generate("hello", 4, "flex"),
}


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
@pytest.mark.parametrize(
    "fault",
    [
        Status(engine=EngineName.CHAT, status=500),
        Reset(engine=EngineName.CHAT),
        Html(engine=EngineName.CHAT),
        Garbage(engine=EngineName.CHAT),
        Cut(engine=EngineName.CHAT, after_chunks=1),
        Cut(engine=EngineName.CHAT, after_chunks=1, clean=True),
    ],
    ids=lambda fault: fault.kind,
)
async def test_what_is_not_an_answer_is_a_failure_that_names_the_url(
    ask: Callable[[Client], object], fault: Fault
) -> None:
    async with client_of(fault) as (client, host):
        with pytest.raises(RequestFailed, match=host.chat_url):
            await ask(client)


async def test_the_error_of_a_failure_is_told() -> None:
    async with client_of(Status(engine=EngineName.CHAT, status=500, message="gone")) as (client, _):
        with pytest.raises(RequestFailed, match=r"answered 500: .*gone"):
            await client.generate("hello", 4, None)
