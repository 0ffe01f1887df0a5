"""A limit law against a simulated server, in virtual time.

One endpoint, one gate in front of it. The gate admits up to the law's limit, interactive requests
first; the server is a function that says when a request begins to be served and ends.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from forebay.core.model import Outcome, Signal, Timing, TimingKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core.limits.protocol import Limit

Size = float


class Server(Protocol):
    """What a request meets behind the gate."""

    def arrive(self, size: Size, now: float) -> tuple[float, float]:
        """Return when service begins and when it ends."""

    def waiting(self, now: float) -> int:
        """Return how many requests wait for capacity."""


@dataclass
class Fifo:
    """`capacity` requests at once, the rest in line; it never refuses anything.

    Args:
        capacity: requests served at once.
        service_s: draws the time that one takes, from its size and the generator.
        rng: the generator.
    """

    capacity: int
    service_s: Callable[[Size, random.Random], float]
    rng: random.Random
    _free_at: list[float] = field(default_factory=list)
    _begins: deque[float] = field(default_factory=deque)

    def arrive(self, size: Size, now: float) -> tuple[float, float]:
        while self._free_at and (self._free_at[0] <= now or len(self._free_at) > self.capacity):
            heapq.heappop(self._free_at)
        busy = len(self._free_at) >= self.capacity
        begins = max(now, heapq.heappop(self._free_at)) if busy else now
        ends = begins + self.service_s(size, self.rng)
        heapq.heappush(self._free_at, ends)
        self._begins.append(begins)
        return begins, ends

    def waiting(self, now: float) -> int:
        while self._begins and self._begins[0] <= now:
            self._begins.popleft()
        return len(self._begins)


@dataclass(slots=True)
class Request:
    size: Size
    offered_at: float
    interactive: bool = False
    started_at: float = 0.0
    served_at: float = 0.0


@dataclass
class World:
    """The gate, its law and the server, driven by events in virtual time.

    Args:
        law: the law under test.
        server: what it governs.
        backlog: best-effort requests always on offer.
        size: draws a request's size.
        interactive_every_s: period of the interactive client, if there is one.
        scrape_every_s: period of scrapes, if the engine has metrics.
        timings: makes a request's readings from it and the time of its end.
    """

    law: Limit
    server: Server
    backlog: int
    size: Callable[[], Size] = lambda: 1.0
    interactive_every_s: float | None = None
    scrape_every_s: float | None = None
    now: float = 0.0
    inflight: int = 0
    done: list[tuple[float, Request]] = field(default_factory=list)
    moves: list[tuple[float, int, str]] = field(default_factory=list)
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _serial: itertools.count[int] = field(default_factory=itertools.count)
    _queue: deque[Request] = field(default_factory=deque)

    def run(self, until: float) -> None:
        if not self._events:
            if self.interactive_every_s:
                self._at(self.interactive_every_s, self._interactive)
            if self.scrape_every_s:
                self._at(self.scrape_every_s, self._scrape)
        self._admit()
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
            self._admit()
        self.now = until

    def _at(self, when: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._serial), event))

    def _interactive(self) -> None:
        assert self.interactive_every_s
        self._queue.append(Request(1.0, self.now, interactive=True))
        self._at(self.now + self.interactive_every_s, self._interactive)

    def _scrape(self) -> None:
        assert self.scrape_every_s
        waiting = self.server.waiting(self.now)
        signal = Signal("test", self.now, waiting=waiting, saturated=waiting > 0)
        self._note(self.law.on_signal(signal, now=self.now))
        self._at(self.now + self.scrape_every_s, self._scrape)

    def _admit(self) -> None:
        limit = self.law.decision.limit
        while self.inflight < limit:
            if self._queue:
                request = self._queue.popleft()
            elif self.inflight < self.backlog:
                request = Request(self.size(), self.now)
            else:
                return
            self.inflight += 1
            request.started_at = self.now
            request.served_at, ends = self.server.arrive(request.size, self.now)
            self._at(ends, lambda request=request: self._finish(request))

    def _finish(self, request: Request) -> None:
        timing = Timing(TimingKind.WORK, self.now - request.started_at, request.size)
        at = {"started_at": request.started_at, "inflight": self.inflight, "now": self.now}
        self._note(self.law.on_timing(timing, **at))
        self._note(self.law.on_end(Outcome.OK, **at))
        self.inflight -= 1
        self.done.append((self.now, request))

    def _note(self, decision: object) -> None:
        if decision is not None:
            self.moves.append((self.now, self.law.decision.limit, self.law.decision.reason))
