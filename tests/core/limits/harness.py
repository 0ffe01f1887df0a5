"""A limit law against a simulated server, in virtual time.

One endpoint, one gate in front of it. The gate admits up to the law's limit, interactive requests
first. The server says of each request when it is served and what is measured of it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from forebay.core.model import Decision, Outcome, Signal, Timing, TimingKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core.limits.protocol import Limit


@dataclass(slots=True)
class Request:
    """One request, and what became of it."""

    size: float
    offered_at: float
    interactive: bool = False
    started_at: float = 0.0
    served_at: float = 0.0
    ended_at: float = 0.0
    readings: list[tuple[float, Timing]] = field(default_factory=list)


class Server(Protocol):
    """What a request meets behind the gate."""

    def serve(self, request: Request, inflight: int) -> None:
        """Fill in when a request is served and ends, and what is measured of it when."""

    def waiting(self, now: float) -> int:
        """Return how many requests wait for capacity."""


@dataclass
class Fifo:
    """`capacity` requests at once, the rest in line; it never refuses anything.

    Args:
        capacity: requests served at once.
        service_s: the time that one takes, from its size.
    """

    capacity: int
    service_s: Callable[[float], float]
    _free_at: list[float] = field(default_factory=list)
    _begins: deque[float] = field(default_factory=deque)

    def serve(self, request: Request, inflight: int) -> None:  # noqa: ARG002 - the protocol's
        now = request.started_at
        while self._free_at and self._free_at[0] <= now:
            heapq.heappop(self._free_at)
        while len(self._free_at) > self.capacity:  # it has become smaller
            heapq.heappop(self._free_at)
        busy = len(self._free_at) >= self.capacity
        request.served_at = heapq.heappop(self._free_at) if busy else now
        request.ended_at = request.served_at + self.service_s(request.size)
        heapq.heappush(self._free_at, request.ended_at)
        self._begins.append(request.served_at)
        work = Timing(TimingKind.WORK, request.ended_at - now, request.size)
        request.readings = [(request.ended_at, work)]

    def waiting(self, now: float) -> int:
        while self._begins and self._begins[0] <= now:
            self._begins.popleft()
        return len(self._begins)


@dataclass
class Chat:
    """Streams `size` tokens a request; slower at everything above `knee` in flight."""

    knee: int
    first_token_s: float = 0.2
    output_token_s: float = 0.02

    def serve(self, request: Request, inflight: int) -> None:
        over = max(0.0, inflight / self.knee - 1)
        first_s = self.first_token_s * (1 + 28 * over)  # half as many again: 3 s
        token_s = self.output_token_s * (1 + 2.5 * over)  # and 45 ms
        first_at = request.served_at = request.started_at + first_s
        request.ended_at = first_at + token_s * request.size
        request.readings = [
            (first_at, Timing(TimingKind.FIRST_TOKEN, first_s, 300.0)),
            (request.ended_at, Timing(TimingKind.OUTPUT_TOKEN, token_s, 1.0)),
        ]

    def waiting(self, now: float) -> int:  # noqa: ARG002 - the protocol's
        return 0


@dataclass
class World:
    """The gate, its law and the server, driven by events.

    Args:
        law: the law under test.
        server: what it governs.
        backlog: how many best-effort requests want to be in flight at any time.
        size: draws a best-effort request's size.
        interactive_every_s: period of the interactive client, if there is one.
        scrape_every_s: period of the scrapes, if the engine has metrics.
    """

    law: Limit
    server: Server
    backlog: int
    size: Callable[[], float] = lambda: 1.0
    interactive_every_s: float | None = None
    scrape_every_s: float | None = None
    now: float = 0.0
    inflight: int = 0
    done: list[Request] = field(default_factory=list)
    moves: list[tuple[float, Decision]] = field(default_factory=list)
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _serial: itertools.count[int] = field(default_factory=itertools.count)
    _interactive: deque[Request] = field(default_factory=deque)

    def __post_init__(self) -> None:
        if self.interactive_every_s:
            self._at(self.interactive_every_s, self._offer_interactive)
        if self.scrape_every_s:
            self._at(self.scrape_every_s, self._scrape)

    def run(self, until: float) -> None:
        self._admit()
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
            self._admit()
        self.now = until

    def limits_since(self, since: float) -> list[int]:
        """Return every limit that held at or after `since`."""
        before = [decision.limit for at, decision in self.moves if at < since]
        after = [decision.limit for at, decision in self.moves if at >= since]
        return [*before[-1:], *after] or [self.law.decision.limit]

    @property
    def cuts(self) -> list[tuple[float, str]]:
        """Return when the limit was cut, and why."""
        return [(at, d.reason) for at, d in self.moves if d.reason.startswith("cut:")]

    def _at(self, when: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._serial), event))

    def _offer_interactive(self) -> None:
        assert self.interactive_every_s
        self._interactive.append(Request(1.0, self.now, interactive=True))
        self._at(self.now + self.interactive_every_s, self._offer_interactive)

    def _scrape(self) -> None:
        assert self.scrape_every_s
        waiting = self.server.waiting(self.now)
        signal = Signal("test", self.now, waiting=waiting, saturated=waiting > 0)
        self._note(self.law.on_signal(signal, now=self.now))
        self._at(self.now + self.scrape_every_s, self._scrape)

    def _admit(self) -> None:
        while self.inflight < self.law.decision.limit:
            if self._interactive:
                request = self._interactive.popleft()
            elif self.inflight < self.backlog:
                request = Request(self.size(), self.now)
            else:
                return
            self.inflight += 1
            request.started_at = self.now
            self.server.serve(request, self.inflight)
            for at, timing in request.readings:
                self._at(at, lambda r=request, t=timing: self._read(r, t))
            self._at(request.ended_at, lambda r=request: self._finish(r))

    def _read(self, request: Request, timing: Timing) -> None:
        decision = self.law.on_timing(
            timing, started_at=request.started_at, inflight=self.inflight, now=self.now
        )
        self._note(decision)

    def _finish(self, request: Request) -> None:
        decision = self.law.on_end(
            Outcome.OK,
            started_at=request.started_at,
            inflight=self.inflight,
            now=self.now,
            work=request.size,
        )
        self._note(decision)
        self.inflight -= 1
        self.done.append(request)

    def _note(self, decision: Decision | None) -> None:
        if decision is not None:
            self.moves.append((self.now, decision))
