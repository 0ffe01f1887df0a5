"""Whatever threads and loops do with slots, at random and all at once, nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import random
import re
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
import uvloop

import forebay
from support.sessions import inflight, waiting

_PATIENCE_S = 20
_THREADS, _LOOPS, _STEPS = 4, 4, 1250  # 10,000 in all
_CEILING = 3


class MistakeError(Exception):
    """What a block raises."""


class Seen:
    """How many run at once, as those who run see it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = self.most = 0
        self.done: dict[str, int] = {}

    def enter(self) -> None:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)

    def leave(self) -> None:
        with self._lock:
            self._running -= 1

    def note(self, what: str) -> None:
        with self._lock:
            self.done[what] = self.done.get(what, 0) + 1


@dataclass
class InAThread:
    """What a thread does."""

    fb: forebay.Session
    rng: random.Random
    seen: Seen

    def run(self) -> None:
        what = [self.slot] * 60 + [self.drop] * 15 + [self.drop_entered] * 15
        what += [self.hand_on] * 6 + [self.break_off, self.mapped]
        for each in self.rng.choices(what, k=_STEPS):
            try:
                each()
            except (MistakeError, forebay.Rejected):
                self.seen.note(f"{each.__name__} failed")
            else:
                self.seen.note(each.__name__)

    def use(self, item: int) -> None:
        self.seen.enter()
        time.sleep(0)
        self.seen.leave()
        if self.rng.random() < 0.1:
            raise MistakeError(item)

    def slot(self) -> None:
        with self.fb.slot("embed", timeout=self.rng.choice([0.001, 0.01, 10])):
            self.use(0)

    def drop(self) -> None:
        self.fb.try_slot("embed")

    def drop_entered(self) -> None:
        lease = self.fb.try_slot("embed")
        if lease is not None:
            lease.__enter__()

    def hand_on(self) -> None:
        lease = self.fb.try_slot("embed")
        if lease is not None:
            threading.Thread(target=lease.give_back).start()

    def break_off(self) -> None:
        for _ in self.fb.stream_sync(self.use, count(), model="embed", buffer=3):
            break

    def mapped(self) -> None:
        self.fb.map_concurrent_sync(self.use, range(3), model="embed")


@dataclass
class InALoop:
    """What the tasks of a loop do, five at a time, one of which is cancelled."""

    fb: forebay.Session
    rng: random.Random
    seen: Seen

    async def run(self) -> None:
        what = [self.slot] * 60 + [self.drop] * 15 + [self.break_off] * 5 + [self.mapped] * 10
        for _ in range(_STEPS // 5):
            chosen = self.rng.choices(what, k=5)
            tasks = [asyncio.create_task(each()) for each in chosen]
            for _ in range(self.rng.randrange(4)):
                await asyncio.sleep(0)
            self.rng.choice(tasks).cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            for each, error in zip(chosen, ended, strict=True):
                expected = isinstance(
                    error, MistakeError | forebay.Rejected | asyncio.CancelledError
                )
                assert error is None or expected, error
                self.seen.note(f"{each.__name__} failed" if expected else each.__name__)

    async def use(self, item: int) -> None:
        self.seen.enter()
        try:
            await asyncio.sleep(0)
        finally:
            self.seen.leave()
        if self.rng.random() < 0.1:
            raise MistakeError(item)

    async def slot(self) -> None:
        async with self.fb.slot("embed", timeout=self.rng.choice([0.001, 0.01, 10])):
            await self.use(0)

    async def drop(self) -> None:
        self.fb.try_slot("embed")

    async def break_off(self) -> None:
        async for _ in self.fb.as_completed(self.use, count(), model="embed", buffer=3):
            break

    async def mapped(self) -> None:
        await self.fb.map_concurrent(self.use, range(3), model="embed")


def there() -> Counter[str]:
    """What open files are, and threads, of which Python's own pools may keep some."""
    gc.collect()
    found = Counter(thread.name for thread in threading.enumerate())
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that which listed them
            found[re.sub(r"\d+", "", str(file.readlink()))] += 1
    return Counter({name: n for name, n in found.items() if not name.startswith("asyncio_")})


@pytest.mark.parametrize("seed", range(2))
def test_ten_thousand_random_steps_leave_nothing(config, seed) -> None:
    with forebay.open_sync(config(embedding=_CEILING)) as fb:
        uvloop.new_event_loop().close()  # it keeps a pipe for the process, from its first loop on
        fb.map_concurrent_sync(str, [1], model="embed")
        before, seen = there(), Seen()
        tasks = len(asyncio.all_tasks(fb._home.loop))
        errors: list[BaseException] = []

        def run(number: int) -> None:
            rng = random.Random(seed * 100 + number)
            try:
                if number < _THREADS:
                    InAThread(fb, rng, seen).run()
                else:
                    factory = [asyncio.new_event_loop, uvloop.new_event_loop][number % 2]
                    with asyncio.Runner(loop_factory=factory) as runner:
                        runner.run(InALoop(fb, rng, seen).run())
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
        while inflight(fb) or waiting(fb) or there() - before:
            assert time.monotonic() < by, (inflight(fb), waiting(fb), there() - before)
            time.sleep(0.05)
        assert len(asyncio.all_tasks(fb._home.loop)) == tasks
        assert seen.most == _CEILING
        assert {"slot", "slot failed", "break_off", "mapped", "drop_entered"} <= seen.done.keys()
