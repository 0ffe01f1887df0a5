"""Whatever threads and loops do with HTTP clients, at random and all at once, nothing is left."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import uvloop

import forebay
from forebay.emulator import ChatSpec, EmbeddingSpec, Emulator, EmulatorSpec
from support.configs import emulated
from support.sessions import inflight, waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.emulator import Host

_PATIENCE_S = 30
_THREADS, _LOOPS, _STEPS = 3, 3, 240
_SPEC = EmulatorSpec(
    chat=ChatSpec(weights_s=0.0005, token_s=1e-6, overhead_s=0.0001, prefill_overhead_s=0.001),
    embedding=EmbeddingSpec(weights_s=0.0005, token_s=1e-6, overhead_s=0.001, dimensions=4),
)
_EXPECTED = (httpx2.TransportError, httpx2.StreamError, forebay.ForebayError)


@contextmanager
def emulator() -> Iterator[Host]:
    """The emulated host, in a thread of its own."""
    started, hosts = threading.Event(), []

    async def run() -> None:
        async with Emulator(_SPEC).running() as host:
            stop = asyncio.Event()
            hosts.append((host, asyncio.get_running_loop(), stop))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    started.wait()
    host, loop, stop = hosts[0]
    try:
        yield host
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def asking(rng: random.Random, *, stream: bool) -> dict[str, Any]:
    """A request for an answer of some length."""
    messages = [{"role": "user", "content": "x"}]
    tokens = rng.choice([1, 20, 300])
    body = {"model": "chat", "messages": messages, "max_tokens": tokens, "stream": stream}
    return {"url": "/chat/completions", "json": body, "timeout": rng.choice([0.003, None, None])}


@dataclass
class InAThread:
    """What a thread does."""

    fb: forebay.Session
    rng: random.Random
    done: list[str]

    def run(self) -> None:
        what = [self.whole] * 4 + [self.left] * 4 + [self.forgotten] * 3 + [self.embed] * 2
        with self.fb.http_client_sync() as self.http:
            for each in self.rng.choices(what, k=_STEPS):
                try:
                    each()
                except _EXPECTED:
                    self.done.append("failed")
                else:
                    self.done.append(each.__name__)

    def whole(self) -> None:
        self.http.post(**asking(self.rng, stream=False))

    def left(self) -> None:
        with self.http.stream("POST", **asking(self.rng, stream=True)) as answer:
            for _ in answer.iter_bytes():
                if self.rng.random() < 0.3:
                    break

    def forgotten(self) -> None:
        request = asking(self.rng, stream=True)
        timeout = request.pop("timeout")
        built = self.http.build_request("POST", timeout=timeout, **request)
        self.http.send(built, stream=True)

    def embed(self) -> None:
        texts = (f"text {n}" for n in range(self.rng.choice([1, 70])))
        self.fb.embed_sync(texts, model="embedding")


@dataclass
class InALoop:
    """What the tasks of a loop do, four at a time, one of which is cancelled."""

    fb: forebay.Session
    rng: random.Random
    done: list[str]

    async def run(self) -> None:
        what = [self.whole] * 4 + [self.left] * 4 + [self.forgotten] * 3 + [self.embed] * 2
        async with self.fb.http_client() as self.http:
            for _ in range(_STEPS // 4):
                chosen = self.rng.choices(what, k=4)
                tasks = [asyncio.create_task(each()) for each in chosen]
                for _ in range(self.rng.randrange(6)):
                    await asyncio.sleep(self.rng.choice([0, 0.001]))
                self.rng.choice(tasks).cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
                for each, error in zip(chosen, ended, strict=True):
                    expected = isinstance(error, (*_EXPECTED, asyncio.CancelledError))
                    assert error is None or expected, error
                    self.done.append("failed" if expected else each.__name__)

    async def whole(self) -> None:
        await self.http.post(**asking(self.rng, stream=False))

    async def left(self) -> None:
        async with self.http.stream("POST", **asking(self.rng, stream=True)) as answer:
            async for _ in answer.aiter_bytes():
                if self.rng.random() < 0.3:
                    break

    async def forgotten(self) -> None:
        request = asking(self.rng, stream=True)
        timeout = request.pop("timeout")
        built = self.http.build_request("POST", timeout=timeout, **request)
        await self.http.send(built, stream=True)

    async def embed(self) -> None:
        texts = (f"text {n}" for n in range(self.rng.choice([1, 70])))
        await self.fb.embed(texts, model="embedding")


@pytest.mark.parametrize("seed", range(2))
def test_random_requests_leave_no_slot_no_task_and_nothing_at_the_endpoint(write, seed) -> None:
    with emulator() as host, forebay.open_sync(write(emulated(host))) as fb:
        tasks = len(asyncio.all_tasks(fb._home.loop))
        errors: list[BaseException] = []
        done: list[str] = []

        def run(number: int) -> None:
            rng = random.Random(seed * 100 + number)
            try:
                if number < _THREADS:
                    InAThread(fb, rng, done).run()
                else:
                    factory = [asyncio.new_event_loop, uvloop.new_event_loop][number % 2]
                    with asyncio.Runner(loop_factory=factory) as runner:
                        runner.run(InALoop(fb, rng, done).run())
            except BaseException as error:  # noqa: BLE001 - seen in the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(_THREADS + _LOOPS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * _PATIENCE_S)
            assert not thread.is_alive()
        assert errors == []

        by = time.monotonic() + _PATIENCE_S
        while inflight(fb) or waiting(fb) or len(asyncio.all_tasks(fb._home.loop)) > tasks:
            gc.collect()
            assert time.monotonic() < by, (inflight(fb), waiting(fb))
            time.sleep(0.05)
        while any(host.record()[engine]["inflight"] for engine in ("chat", "embedding")):
            assert time.monotonic() < by, host.record()
            time.sleep(0.05)
        assert {"whole", "left", "forgotten", "embed", "failed"} <= set(done)
        assert done.count("failed") < len(done) / 2
