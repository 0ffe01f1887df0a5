"""One run: the core, its driver, the servers and the recorder, on one clock."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from forebay.core.model import ServiceClass, Ticket
from forebay.core.observer import Observer
from forebay.core.retries import Retries
from forebay.core.retry import RetryBudget
from forebay.sim.call import Call
from forebay.sim.door import Door
from forebay.sim.driver import VirtualLimiter
from forebay.sim.gpu import Gpu
from forebay.sim.record import LimitMove, Record, Request, Sample, ShareMove
from forebay.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.core.admission import Grant
    from forebay.core.member import Member
    from forebay.core.model import Decision, Endpoint, Outcome, Signal
    from forebay.core.protection import Guard
    from forebay.sim.call import Done
    from forebay.sim.loads import Load
    from forebay.sim.scenario import AdmissionMaker, Scrape
    from forebay.sim.server import ServerSpec, Size

_SAMPLE_S = 1.0


class _Scribe(Observer):
    """Writes down what the core changes by itself."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def limit_changed(self, endpoint: Endpoint, decision: Decision, now: float) -> None:
        self._record.limits.append(LimitMove(now, endpoint.id, decision.limit, decision.reason))

    def share_changed(self, guard: Guard, now: float) -> None:
        move = ShareMove(now, guard.group, guard.share, guard.ratio, guard.reason)
        self._record.shares.append(move)


class Simulation:
    """A scenario that is under way.

    Args:
        servers: what is behind each endpoint, at first.
        make_admission: makes the core.
        scrape: how engines' metrics are read; None: they have none.
        seed: everything random depends on it alone.

    Attributes:
        world: the clock.
        limiter: the driver of the core.
        gpus: by GPU group.
        doors: by the id of each endpoint that is there; behind it is its server.
        record: what has happened so far.
    """

    def __init__(
        self,
        servers: Mapping[Endpoint, ServerSpec],
        make_admission: AdmissionMaker,
        *,
        scrape: Scrape | None = None,
        seed: int = 0,
    ) -> None:
        self.world = World(seed)
        self.record = Record()
        self.gpus: dict[str, Gpu] = {}
        self.doors: dict[str, Door] = {}
        self._scraping = scrape
        self._classes: dict[str, ServiceClass] = {}
        self._preempted: Counter[str] = Counter()  # by servers that are gone
        admission = make_admission(self.world.rng("admission"), _Scribe(self.record))
        self.limiter = VirtualLimiter(admission, self.world)
        self._retry_budgets: dict[str, RetryBudget] = {}
        self._retries = Retries(admission, self._retry_budgets)
        self.world.after(_SAMPLE_S, self._sample)
        for endpoint, spec in servers.items():
            self._open(endpoint, spec)
            self._size_retries(endpoint.model)

    def run(self, until: float) -> Record:
        """Let time pass until `until`, and return the record so far."""
        self.world.run(until)
        record = self.record
        record.seconds = until
        for endpoint_id in self.doors:
            record.preemptions[endpoint_id] = self._preemptions(endpoint_id)
        return record

    def add(self, endpoint: Endpoint, spec: ServerSpec) -> None:
        """Put an endpoint in, with its server; one that drains serves again, as it is.

        Raises:
            ValueError: see `Admission.add`.
        """
        if endpoint.id not in self.doors:
            self._open(endpoint, spec)  # first: whoever waits may start there at once
        self.limiter.add(endpoint)
        self._size_retries(endpoint.model)

    def remove(self, endpoint_id: str) -> None:
        """Drain an endpoint, and let it go when nothing runs there, unless it is added again."""
        self.limiter.drain(endpoint_id)
        self._let_go(endpoint_id)

    def again(self, grant: Grant, outcome: Outcome) -> Ticket | None:
        """Return the ticket for another endpoint of a request that failed; None: it has failed."""
        return self._retries.again(grant.ticket, grant.endpoint.id, outcome, self.world.now)

    def ask(self, load: Load, size: Size, done: Done | None = None) -> None:
        """Send one request.

        Args:
            load: whose it is, and how it asks.
            size: what it asks for.
            done: told when it is over, with its record, and when to come back if it was refused.
        """
        now = self.world.now
        # Of a model that is not there: refused in any class.
        own_class = self._classes.get(load.model, ServiceClass.INTERACTIVE)
        service_class = load.service_class or own_class
        ticket = Ticket(
            load.model,
            service_class,
            now,
            now + load.timeout_s,
            load.weight(size) if load.weight else 0,
        )
        request = Request(load.model, service_class, size, now)
        self.record.requests.append(request)
        self._retries.note(ticket)
        self.limiter.ask(ticket, Call(self, load, request, done))
        if self.limiter.waits(ticket):
            self._check_floors(self.limiter.admission.queues[load.model, service_class].members)

    def started(self, grant: Grant) -> None:
        """Note how many slots are taken, now that one more is."""
        room, peaks = grant.member.room, self.record.peak_inflight
        if room.inflight > peaks.get(room.name, 0):
            peaks[room.name] = room.inflight

    def _open(self, endpoint: Endpoint, spec: ServerSpec) -> None:
        """Build an endpoint's server, and a door before it."""
        group, world = endpoint.gpu_group, self.world
        if group not in self.gpus:
            self.gpus[group] = Gpu(world, world.rng(f"gpu {group}"))
        server = spec.build(world, self.gpus[group])
        door = Door(world, server, world.rng(f"door {endpoint.id}"))
        self.doors[endpoint.id] = door
        self._classes.setdefault(endpoint.model, endpoint.service_class)
        if self._scraping is not None:
            world.after(self._scraping.every_s, self._scrape, endpoint.id, door, self._scraping)

    def _let_go(self, endpoint_id: str) -> None:
        """Take an endpoint out as soon as nothing runs there."""
        state = self.limiter.admission.states.get(endpoint_id)
        if state is None or not state.draining:
            return
        if state.live:
            self.world.after(_SAMPLE_S, self._let_go, endpoint_id)
            return
        self.limiter.remove(endpoint_id)
        preemptions = self._preemptions(endpoint_id)
        self._preempted[endpoint_id] = self.record.preemptions[endpoint_id] = preemptions
        del self.doors[endpoint_id]
        self._size_retries(state.endpoint.model)

    def _size_retries(self, model: str) -> None:
        """Let as many requests of a model be tried again at once as its endpoints may lose."""
        states = self.limiter.admission.states.values()
        most = sum(state.ceiling for state in states if state.endpoint.model == model)
        if model in self._retry_budgets:
            self._retry_budgets[model].resize(most)
        else:
            self._retry_budgets[model] = RetryBudget(most)

    def _preemptions(self, endpoint_id: str) -> int:
        """Of an endpoint that is there, by all servers that it has had."""
        told = self.doors[endpoint_id].server.signal(self.world.now).preemptions
        return self._preempted[endpoint_id] + int(told or 0)

    def _sample(self) -> None:
        now, record = self.world.now, self.record
        for endpoint_id, state in self.limiter.admission.states.items():
            engine = self.doors[endpoint_id].server.signal(now)
            record.samples.append(
                Sample(
                    at=now,
                    endpoint=endpoint_id,
                    inflight=state.inflight,
                    limit=state.limit,
                    waiting=len(state.native.queue),
                    engine_running=engine.running or 0.0,
                    engine_waiting=engine.waiting or 0.0,
                    kv_usage=engine.kv_usage,
                )
            )
            if state.waiting:
                self._check_floors([state.native])
        self.world.after(_SAMPLE_S, self._sample)

    def _check_floors(self, members: list[Member]) -> None:
        """Count a priority member that waits below its floor for anything but its own limit."""
        for member in members:
            state, ticket = member.state, member.head
            if not member.priority or ticket is None or not state.usable:
                continue
            weight = state.endpoint.slots_for(ticket)
            if member.inflight + weight <= member.floor and state.inflight + weight <= state.limit:
                self.record.floor_violations += 1

    def _scrape(self, endpoint_id: str, door: Door, scrape: Scrape) -> None:
        """Read the gauges; what is shown of them now was true `lag_s` ago."""
        world = self.world
        if self.doors.get(endpoint_id) is not door:  # it has been taken out
            return
        if door.down or door.hangs:
            self.limiter.signal(endpoint_id, None)
        elif scrape.lag_s:
            told = door.server.signal(world.now + scrape.lag_s)
            world.after(scrape.lag_s, self._hear, endpoint_id, door, told)
        else:
            self._hear(endpoint_id, door, door.server.signal(world.now))
        world.after(scrape.every_s, self._scrape, endpoint_id, door, scrape)

    def _hear(self, endpoint_id: str, door: Door, signal: Signal) -> None:
        if self.doors.get(endpoint_id) is door:
            self.limiter.signal(endpoint_id, signal)
