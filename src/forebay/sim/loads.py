"""Who asks: open arrivals, closed loops, conversations, traces.

An open load does not care how long answers take, as the public does not; a closed one has so many
workers, and each asks again when it has its answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import cos, inf, pi
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from forebay.core.model import ServiceClass
    from forebay.sim.record import Request
    from forebay.sim.server import Size
    from forebay.sim.simulation import Simulation
    from forebay.sim.sizes import Sizes

# A worker who got no answer asks again after the time that the refusal names, else after this.
_RETRY_S = 1.0


class Rate(NamedTuple):
    """Arrivals a second as a function of time.

    Args:
        at: the rate at a time.
        most: the highest that it ever is.
    """

    at: Callable[[float], float]
    most: float


def steady(per_s: float) -> Rate:
    """Always the same."""
    return Rate(lambda _now: per_s, per_s)


def steps(*parts: tuple[float, float]) -> Rate:
    """From each time on, the rate that stands beside it; 0 before the first."""

    def at(now: float) -> float:
        return next((rate for since, rate in reversed(parts) if since <= now), 0.0)

    return Rate(at, max(rate for _, rate in parts))


def wave(low: float, high: float, period_s: float) -> Rate:
    """Up and down like a day, beginning low."""
    middle, swing = (low + high) / 2, (high - low) / 2
    return Rate(lambda now: middle - swing * cos(2 * pi * now / period_s), high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(ABC):
    """Requests for one model.

    Args:
        model: id of the model.
        service_class: the class to ask in; None for the one that the model has by itself.
        streamed: whether tokens come as they are generated.
        timeout_s: what a request has for everything, queue included.
        weight: slots of a request, from its size; None for its endpoint's `slot_weight`.
        since_s: when it begins.
        until_s: when it ends; what has been asked goes on.
    """

    model: str
    service_class: ServiceClass | None = None
    streamed: bool = True
    timeout_s: float = inf
    weight: Callable[[Size], int] | None = None
    since_s: float = 0.0
    until_s: float = inf

    @abstractmethod
    def begin(self, simulation: Simulation, rng: Random) -> None:
        """Put the first events on the calendar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open(Load):
    """Poisson arrivals, at a rate that may vary."""

    rate: Rate
    sizes: Sizes

    def begin(self, simulation: Simulation, rng: Random) -> None:
        """Ask for the first time."""
        world, rate, sizes = simulation.world, self.rate, self.sizes

        def arrive() -> None:
            now = world.now
            if now >= self.until_s:
                return
            if rng.random() * rate.most < rate.at(now):  # thinning (Lewis and Shedler)
                simulation.ask(self, sizes(rng, now))
            world.after(rng.expovariate(rate.most), arrive)

        world.at(self.since_s + rng.expovariate(rate.most), arrive)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(Load):
    """Workers who ask, wait for the answer, think, and ask again: bulk jobs, or chat users.

    Args:
        workers: how many.
        sizes: of requests.
        think_s: mean time between an answer and the next request, exponential; 0 for none.
        total: requests in all: a backlog of so many. What gets no answer is asked again.
    """

    workers: int
    sizes: Sizes
    think_s: float = 0.0
    total: float = inf

    def begin(self, simulation: Simulation, rng: Random) -> None:
        """Let every worker ask for the first time."""
        world = simulation.world
        asked = 0

        def ask() -> None:
            nonlocal asked
            if world.now < self.until_s and asked < self.total:
                asked += 1
                simulation.ask(self, self.sizes(rng, world.now), answered)

        def answered(request: Request, retry_after_s: float | None) -> None:
            nonlocal asked
            if not request.ok:
                asked -= 1
                world.after(retry_after_s or _RETRY_S, ask)
            elif self.think_s:
                world.after(rng.expovariate(1 / self.think_s), ask)
            else:
                world.after(0.0, ask)

        for _ in range(self.workers):
            first_s = rng.expovariate(1 / self.think_s) if self.think_s else 0.0
            world.at(self.since_s + first_s, ask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations(Load):
    """Users who talk: each turn's prompt holds all that was said before.

    Args:
        users: how many.
        turns: in one conversation; then the user begins another one.
        sizes: of what is said in one turn, and of its answer.
        think_s: mean time from an answer to the next turn, exponential, > 0.
        most_tokens: a conversation that would get longer than this is over.
    """

    users: int
    turns: int
    sizes: Sizes
    think_s: float
    most_tokens: int = 4096

    def begin(self, simulation: Simulation, rng: Random) -> None:
        """Let every user begin."""
        for _ in range(self.users):
            talk = _Talk(self, simulation, rng)
            first_s = rng.expovariate(1 / self.think_s)
            simulation.world.at(self.since_s + first_s, talk.say)


class _Talk:
    """One user of `Conversations`."""

    def __init__(self, load: Conversations, simulation: Simulation, rng: Random) -> None:
        self._load = load
        self._simulation = simulation
        self._rng = rng
        self._said = 0
        self._turn = 0

    def say(self) -> None:
        now = self._simulation.world.now
        if now >= self._load.until_s:
            return
        size = self._load.sizes(self._rng, now)
        over = self._said + size.input_tokens + size.output_tokens > self._load.most_tokens
        if over or self._turn == self._load.turns:
            self._said = self._turn = 0
        whole = size._replace(input_tokens=self._said + size.input_tokens)
        self._simulation.ask(self._load, whole, self._answered)

    def _answered(self, request: Request, retry_after_s: float | None) -> None:
        if request.ok:
            self._turn += 1
            self._said = request.size.input_tokens + request.size.output_tokens
        think_s = self._rng.expovariate(1 / self._load.think_s)
        self._simulation.world.after(max(think_s, retry_after_s or 0.0), self.say)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Load):
    """Requests at given times (see `forebay.sim.traces`).

    Args:
        rows: for each request, seconds from `since_s`, and its size; in order of time.
    """

    rows: Iterable[tuple[float, Size]]

    def begin(self, simulation: Simulation, rng: Random) -> None:  # noqa: ARG002
        """Put the first request on the calendar; each brings the next one."""
        rows, world = iter(self.rows), simulation.world

        def arrive(size: Size) -> None:
            if world.now < self.until_s:
                simulation.ask(self, size)
                follow()

        def follow() -> None:
            row = next(rows, None)
            if row is not None:
                world.at(self.since_s + row[0], arrive, row[1])

        follow()
