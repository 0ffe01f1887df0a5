"""One endpoint's periodic reads of its engine's own metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from forebay.adapters.engines.batching import BatchLimits
from forebay.adapters.engines.counters import increase, mean_queue_s
from forebay.adapters.engines.detect import detect
from forebay.adapters.engines.pages import Pages
from forebay.adapters.engines.unknown import Unknown
from forebay.core.model import EngineState
from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from forebay.adapters.engines.base import Engine
    from forebay.adapters.engines.pages import Fetch
    from forebay.adapters.engines.reply import Reply
    from forebay.core.model import Signal

_log = logging.getLogger(__name__)

_LOADING_INTERVAL_S = 1.0
_RELEARN_S = 600.0  # how long "it is this engine" and "it has no such page" are believed
_STALE_INTERVALS = 3
_JITTER = 0.1


class Scraper:
    """Reads one server for one model, again and again, and tells what the engine reports.

    A failed read is told as None: unknown, which is neither the last value nor zero.

    Args:
        root: where the server's paths begin, without ``/v1``.
        model: the model that the endpoint serves.
        fetch: reads a URL; raises `ScrapeFailed` when it cannot.
        engines: what the server may be; if that is one, nothing is left to find out.
        on_signal: called after each read of the running scraper.
        rng: spreads the reads of many scrapers.
        metrics_url: where its metrics are, if not at ``/metrics`` under `root`.
        interval_s: mean time between reads; an engine that loads is read every second.
        clock: the monotonic clock of `Signal.at`.

    Attributes:
        failure: why the last read failed, else None.
        batch_limits: what the server told about batches.
        queue_s: mean time that requests waited in the engine between the last two reads.
    """

    def __init__(  # noqa: PLR0913 - all by keyword, and most have defaults
        self,
        *,
        root: str,
        model: str,
        fetch: Fetch,
        engines: Sequence[Engine],
        on_signal: Callable[[Signal | None], None],
        rng: random.Random,
        metrics_url: str | None = None,
        interval_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = f"{model} at {root}"
        self._model = model
        self._pages = Pages(root, model, fetch, metrics_url=metrics_url)
        self._engines = tuple(engines)
        self._on_signal = on_signal
        self._rng = rng
        self._interval_s = interval_s
        self._clock = clock
        self._engine: Engine = self._engines[0] if len(self._engines) == 1 else Unknown()
        self._learned_at: float | None = None
        self._signal: Signal | None = None
        self._counters: Signal | None = None  # as read, whatever was made of it
        self._noted = ""
        self._task: asyncio.Task[None] | None = None
        self.failure: str | None = None
        self.batch_limits = BatchLimits()
        self.queue_s: float | None = None

    def __repr__(self) -> str:
        return f"<Scraper {self._label}: {self._engine.name}, failure={self.failure!r}>"

    @property
    def engine(self) -> Engine:
        """What the server is; `Unknown` until that is found out."""
        return self._engine

    def latest(self, now: float) -> Signal | None:
        """The last signal; None once it is older than three intervals."""
        signal = self._signal
        if signal is None or now - signal.at > _STALE_INTERVALS * self._interval_s:
            return None
        return signal

    def start(self) -> None:
        """Begin to read, in a task of the running loop."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"scrape {self._label}")

    def stop(self) -> None:
        """Read no more; what is being read is given up soon."""
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """Stop reading. Safe to call twice, and to cancel."""
        self.stop()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait([task])

    def follow(self, before: Scraper) -> None:
        """Go on from what another scraper knows of the same server, until the first read."""
        if len(self._engines) != 1:
            self._engine = before.engine
        self._signal, self._counters = before._signal, before._counters
        self.batch_limits, self.queue_s = before.batch_limits, before.queue_s

    async def read(self) -> Signal | None:
        """Read once; None when that failed, and then `failure` says why."""
        now = self._clock()
        try:
            await self._learn(now)
            replies = await self._replies()
            signal = self._engine.read(replies, self._model, now)
        except ScrapeFailed as error:
            self._learned_at = None  # what comes back may be another server
            self.failure = str(error)
            self._note(logging.WARNING, f"cannot read its metrics: {error}")
            return None
        self.failure = None
        self.batch_limits = self._engine.batch_limits(replies)
        self._signal = self._compared(signal)
        self._note(logging.INFO, _summary(signal))
        return self._signal

    async def _run(self) -> None:
        while True:
            signal = None
            try:
                signal = await self.read()
                self._on_signal(signal)
            except Exception:  # noqa: BLE001 - a listener's fault must not end the reads
                _log.exception("%s: reading its metrics", self._label)
            await asyncio.sleep(self._pause_s(signal))

    def _pause_s(self, signal: Signal | None) -> float:
        if signal is not None and signal.state is EngineState.LOADING:
            return min(_LOADING_INTERVAL_S, self._interval_s)
        return self._interval_s * self._rng.uniform(1 - _JITTER, 1 + _JITTER)

    async def _learn(self, now: float) -> None:
        """Find out what the server is and has, at first, after failures, and every ten minutes."""
        if self._learned_at is not None and now - self._learned_at < _RELEARN_S:
            return
        self._pages.forget()
        if len(self._engines) != 1:
            self._engine = await detect(self._pages.get, self._engines)
        self._learned_at = now

    async def _replies(self) -> dict[str, Reply]:
        replies: dict[str, Reply] = {}
        for path in self._engine.paths:
            try:
                replies[path] = await self._pages.get(path)
            except ScrapeFailed:
                if not replies:  # the first is what matters; the others only add to it
                    raise
        return replies

    def _compared(self, signal: Signal) -> Signal:
        """The signal, saturated if the engine refused requests for load since the last read."""
        before, self._counters = self._counters, signal
        self.queue_s = mean_queue_s(before, signal)
        if before is not None and increase(before.rejections, signal.rejections):
            return replace(signal, saturated=True)
        return signal

    def _note(self, level: int, text: str) -> None:
        """Log changes only: a server without metrics is no news every five seconds."""
        if text != self._noted:
            self._noted = text
            _log.log(level, "%s: %s", self._label, text)


def _summary(signal: Signal) -> str:
    if signal.state is not EngineState.AWAKE:
        return f"{signal.engine} is {signal.state}"
    if signal.running is None and signal.waiting is None:
        return f"{signal.engine} gives no figures of its load"
    return f"{signal.engine} gives figures of its load"
