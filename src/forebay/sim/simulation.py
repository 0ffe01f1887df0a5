"""One run: the core, its driver, the servers and the recorder, on one clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core.model import Ticket
from forebay.core.observer import Observer
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
    from forebay.core.model import Decision, Endpoint, ServiceClass, Signal
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
        servers: what is behind each endpoint.
        make_admission: makes the core.
        scrape: how engines' metrics are read; None: they have none.
        seed: everything random depends on it alone.

    Attributes:
        world: the clock.
        limiter: the driver of the core.
        gpus: by GPU group.
        doors: by endpoint id; behind each is its server.
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
        self._classes: dict[str, ServiceClass] = {}
        for endpoint, spec in servers.items():
            group = endpoint.gpu_group
            if group not in self.gpus:
                self.gpus[group] = Gpu(self.world, self.world.rng(f"gpu {group}"))
            server = spec.build(self.world, self.gpus[group])
            rng = self.world.rng(f"door {endpoint.id}")
            self.doors[endpoint.id] = Door(self.world, server, rng)
            self._classes.setdefault(endpoint.model, endpoint.service_class)
        admission = make_admission(self.world.rng("admission"), _Scribe(self.record))
        self.limiter = VirtualLimiter(admission, self.world)
        self.world.after(_SAMPLE_S, self._sample)
        if scrape is not None:
            for endpoint_id in self.doors:
                self.world.after(scrape.every_s, self._scrape, endpoint_id, scrape)

    def run(self, until: float) -> Record:
        """Let time pass until `until`, and return the record so far."""
        self.world.run(until)
        record = self.record
        record.seconds = until
        for endpoint_id, door in self.doors.items():
            preemptions = door.server.signal(until).preemptions
            record.preemptions[endpoint_id] = int(preemptions or 0)
        return record

    def ask(self, load: Load, size: Size, done: Done | None = None) -> None:
        """Send one request.

        Args:
            load: whose it is, and how it asks.
            size: what it asks for.
            done: told when it is over, with its record, and when to come back if it was refused.
        """
        now = self.world.now
        service_class = load.service_class or self._classes[load.model]
        ticket = Ticket(
            load.model,
            service_class,
            now,
            now + load.timeout_s,
            load.weight(size) if load.weight else 0,
        )
        request = Request(load.model, service_class, size, now)
        self.record.requests.append(request)
        self.limiter.ask(ticket, Call(self, load, request, done))
        if self.limiter.waits(ticket):
            self._check_floors(self.limiter.admission.queues[load.model, service_class].members)

    def started(self, grant: Grant) -> None:
        """Note how many slots are taken, now that one more is."""
        room, peaks = grant.member.room, self.record.peak_inflight
        if room.inflight > peaks.get(room.name, 0):
            peaks[room.name] = room.inflight

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

    def _scrape(self, endpoint_id: str, scrape: Scrape) -> None:
        """Read the gauges; what is shown of them now was true `lag_s` ago."""
        world, door = self.world, self.doors[endpoint_id]
        if door.down or door.hangs:
            self.limiter.signal(endpoint_id, None)
        elif scrape.lag_s:
            told = door.server.signal(world.now + scrape.lag_s)
            world.after(scrape.lag_s, self._hear, endpoint_id, told)
        else:
            self._hear(endpoint_id, door.server.signal(world.now))
        world.after(scrape.every_s, self._scrape, endpoint_id, scrape)

    def _hear(self, endpoint_id: str, signal: Signal) -> None:
        self.limiter.signal(endpoint_id, signal)
