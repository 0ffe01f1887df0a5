"""Whatever the order of events, admission keeps its promises."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.core.breaker import BreakerSettings
from forebay.core.model import Ending, EngineState, Outcome, Signal, Timing, TimingKind
from forebay.core.protection import ProtectionSettings
from forebay.core.queue import QueueBounds
from support.deployments import BEST_EFFORT, INTERACTIVE, Desk, admission, endpoint

MODELS = ("chat", "lite", "embed", "batch")
SPARES = [
    endpoint("embed", host="spare", interactive=False, ceiling=3, fallback_of="embed"),
    endpoint("chat", host="spare", interactive=False, ceiling=2, fallback_of="chat"),
]
TOKENS_PER_SLOT = {"lite": 30, "embed": 10}


class AdmissionMachine(RuleBasedStateMachine):
    @initialize(
        floors=st.tuples(*[st.integers(1, 3)] * 4),
        ceilings=st.tuples(*[st.integers(1, 6)] * 4),
        slack=st.one_of(st.none(), st.integers(0, 6)),
        overtakes=st.integers(1, 4),
        groups=st.sampled_from([("gpu",), ("gpu", "other"), ("gpu", "gpu")]),
        protection=st.sampled_from(
            [None, ProtectionSettings(), ProtectionSettings(min_duty=1.0, first_token_s=0.05)]
        ),
        stand_ins=st.sampled_from([(), (), SPARES[:1], SPARES]),
        also_for=st.sampled_from([(), (), ("embed",), ("embed", "chat")]),
    )
    def build(  # noqa: PLR0913, PLR0917 - a deployment
        self, floors, ceilings, slack, overtakes, groups, protection, stand_ins, also_for
    ) -> None:
        made = [
            endpoint(
                model,
                group=group,
                host=f"h{host}",
                interactive=model in ("chat", "lite"),
                floor=floor,
                ceiling=max(floor, ceiling),
                tokens_per_slot=TOKENS_PER_SLOT.get(model),
                also_for=also_for if model == "lite" else (),
            )
            for host, group in enumerate(groups)
            for model, floor, ceiling in zip(MODELS, floors, ceilings, strict=True)
        ]
        made += stand_ins
        budgets = {}
        if slack is not None:
            for one in made:
                budgets[one.gpu_group] = budgets.get(one.gpu_group, slack) + one.floor
        self.core = admission(
            *made,
            budgets=budgets,
            max_overtakes=overtakes,
            breaker=BreakerSettings(fail_threshold=2),
            bounds=QueueBounds(max_requests=20),
            protection=protection,
        )
        self.desk = Desk(self.core)
        # Rooms whose budget moved: what ran then is never revoked, even where a floor needs it.
        self.shrunk = set()
        self.removed = []
        # What ran on an endpoint when it was moved: its old GPU's guard still counts it.
        self.moved = set()

    @rule(
        model=st.sampled_from(MODELS),
        service_class=st.sampled_from([INTERACTIVE, BEST_EFFORT]),
        weight=st.one_of(st.just(0), st.integers(1, 9)),
        tokens=st.sampled_from([0, 1, 30, 45, 1000]),
        patience=st.sampled_from([float("inf"), 5.0, 1.0]),
        avoid=st.one_of(st.just(()), st.sets(st.sampled_from(["h0", "h1", "spare"]))),
        affinity=st.sampled_from([None, "a", "b"]),
        attempt=st.sampled_from([1, 1, 2]),
    )
    def ask(  # noqa: PLR0913, PLR0917 - a ticket
        self, model, service_class, weight, tokens, patience, avoid, affinity, attempt
    ) -> None:
        self.desk.ask(
            model,
            service_class,
            weight=weight,
            size_tokens=tokens,
            deadline=self.desk.now + patience,
            avoid=frozenset(f"{model}@{host}" for host in avoid),
            affinity=affinity,
            attempt=attempt,
        )

    @rule(
        model=st.sampled_from(MODELS),
        count=st.integers(2, 8),
        affinity=st.sampled_from([None, "a"]),
    )
    def storm(self, model, count, affinity) -> None:
        service_class = INTERACTIVE if model in ("chat", "lite") else BEST_EFFORT
        for _ in range(count):
            self.desk.ask(model, service_class, affinity=affinity)

    @precondition(lambda self: self.removed)
    @rule(data=st.data(), floor=st.integers(1, 3), ceiling=st.integers(1, 6))
    def add(self, data, floor, ceiling) -> None:
        self._add(self.one_of(self.removed, data), floor, ceiling)

    @precondition(lambda self: self.draining())
    @rule(
        data=st.data(),
        floor=st.integers(1, 3),
        ceiling=st.integers(1, 6),
        group=st.sampled_from(["gpu", "other"]),
    )
    def let_it_serve_again(self, data, floor, ceiling, group) -> None:
        state = self.one_of(self.draining(), data)
        if state.endpoint.gpu_group != group:
            self.moved |= {g for g in self.desk.running if g.member.state is state}
        self._add(replace(state.endpoint, gpu_group=group), floor, ceiling)

    def _add(self, one, floor, ceiling) -> None:
        one = replace(one, floor=floor, ceiling=max(floor, ceiling))
        before = set(self.core.states)
        try:
            self.desk.see(self.core.add(one, self.desk.now))
        except ValueError as error:
            assert "floors total" in str(error)  # noqa: PT017
            assert set(self.core.states) == before
            return
        self.removed = [each for each in self.removed if each.id != one.id]
        self.shrunk.add(self.core.states[one.id].native.room)

    @rule(data=st.data())
    def drain(self, data) -> None:
        endpoint_id = data.draw(st.sampled_from(sorted(self.core.states) or [None]))
        if endpoint_id is not None:
            self.desk.see(self.core.drain(endpoint_id, self.desk.now))
            assert not self.core.states[endpoint_id].waiting

    @precondition(lambda self: any(not s.live for s in self.core.states.values()))
    @rule(data=st.data())
    def remove(self, data) -> None:
        idle = [state for state in self.core.states.values() if not state.live]
        state = self.one_of(idle, data)
        self.desk.see(self.core.remove(state.endpoint.id, self.desk.now))
        self.removed.append(state.endpoint)

    def draining(self):
        return [state for state in self.core.states.values() if state.draining]

    @precondition(lambda self: self.desk.running)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome))
    def finish(self, data, outcome) -> None:
        grant = self.one_of(self.desk.running, data)
        self.desk.finish(grant, Ending(outcome))

    @precondition(lambda self: self.desk.running)
    @rule(data=st.data(), seconds=st.sampled_from([0.5, 2.0, 100.0]))
    def leave_alone(self, data, seconds) -> None:
        grant = self.one_of(self.desk.running, data)
        self.desk.finish(grant, Ending(Outcome.CONGESTION, retry_after_s=seconds))

    @precondition(lambda self: self.desk.running)
    @rule(data=st.data())
    def break_down(self, data) -> None:
        state = self.one_of(self.desk.running, data).member.state
        for grant in [g for g in self.desk.running if g.member.state is state]:
            self.desk.finish(grant, Ending(Outcome.FAILURE))

    @precondition(lambda self: self.core.states)
    @rule(
        data=st.data(),
        state=st.one_of(st.none(), st.sampled_from(EngineState)),
        running=st.sampled_from([None, 0.0, 3.0, 9.0]),
    )
    def hear(self, data, state, running) -> None:
        endpoint_id = data.draw(st.sampled_from(sorted(self.core.states)))
        signal = state and Signal("vllm", at=self.desk.now, state=state, running=running)
        self.desk.see(self.core.signal(endpoint_id, signal, self.desk.now))

    @precondition(lambda self: self.desk.running)
    @rule(data=st.data(), seconds=st.sampled_from([0.02, 0.1, 3.0]))
    def first_token(self, data, seconds) -> None:
        grant = self.one_of(self.desk.running, data)
        timing = Timing(TimingKind.FIRST_TOKEN, seconds, 10)
        self.desk.see(self.core.timing(grant, timing, self.desk.now))

    @precondition(lambda self: self.desk.waiting)
    @rule(data=st.data())
    def give_up(self, data) -> None:
        self.desk.give_up(self.one_of(self.desk.waiting, data))

    @precondition(lambda self: self.desk.running)
    @rule(data=st.data())
    def granted_and_cancelled_in_one_tick(self, data) -> None:
        """A driver that hears of the cancellation first returns the slot it was just given."""
        grant = self.one_of(self.desk.running, data)
        self.desk.see(self.core.cancel(grant.ticket, self.desk.now))  # too late: does nothing
        assert grant in self.desk.running
        self.desk.finish(grant, Ending(Outcome.CANCELLED))

    @rule(seconds=st.sampled_from([0.0, 0.5, 2.0, 6.0, 30.0, 1e6, -3.0]))
    def clock(self, seconds) -> None:
        self.desk.now = max(0.0, self.desk.now + seconds)
        self.desk.see(self.core.tick(self.desk.now))

    @precondition(lambda self: self.core.wake_at(self.desk.now) is not None)
    @rule()
    def wake(self) -> None:
        self.desk.now = self.core.wake_at(self.desk.now)
        self.desk.see(self.core.tick(self.desk.now))

    @precondition(lambda self: self.core.rooms)
    @rule(group=st.sampled_from(["gpu", "other"]), slack=st.one_of(st.none(), st.integers(0, 8)))
    def move_budget(self, group, slack) -> None:
        states = self.core.layout.group(group)
        floors = sum(state.native.floor for state in states)
        budget = None if slack is None else max(1, floors + slack)
        self.desk.see(self.core.set_budget(group, budget, self.desk.now))
        self.shrunk |= {state.native.room for state in states}

    @precondition(lambda self: self.core.states)
    @rule(data=st.data(), floor=st.integers(1, 3), ceiling=st.integers(1, 6))
    def move_bounds(self, data, floor, ceiling) -> None:
        state = self.one_of(list(self.core.states.values()), data)
        room, endpoint_id = state.native.room, state.endpoint.id
        try:
            verdicts = self.core.set_bounds(endpoint_id, floor, max(floor, ceiling), self.desk.now)
        except ValueError:
            assert sum(m.floor for m in room.members) - state.native.floor + floor > room.budget
            return
        self.shrunk.add(room)
        self.desk.see(verdicts)

    @precondition(lambda self: self.core.states)
    @rule(data=st.data(), group=st.sampled_from(["gpu", "other"]), tokens=st.integers(5, 50))
    def move_to_another_gpu(self, data, group, tokens) -> None:
        state = self.one_of(list(self.core.states.values()), data)
        before, core, now = state.endpoint, self.core, self.desk.now
        self.moved |= {g for g in self.desk.running if g.member.state is state}
        self.desk.see(core.move(before.id, group, now))
        assert state.draining or not state.native.floor or group == before.gpu_group
        there = replace(before, gpu_group=group, tokens_per_slot=tokens)
        try:
            self.desk.see(core.change(there, now))
        except ValueError:
            self.desk.see(core.move(before.id, before.gpu_group, now))
            self.desk.see(core.change(before, now))
        self.shrunk |= {each.native.room for each in core.states.values()}

    @staticmethod
    def one_of(things, data):
        return things[data.draw(st.integers(0, len(things) - 1))]

    # -- promises ----------------------------------------------------------------------------

    @invariant()
    def counts_are_the_truth(self) -> None:
        assert self.core.live == len(self.desk.running)
        assert all(g.ticket not in q for q in self.core.queues.values() for g in self.desk.running)
        for room in self.core.rooms.values():
            assert room.inflight == sum(m.inflight for m in room.members)
        for state in self.core.states.values():
            held = [g.weight for g in self.desk.running if g.member.state is state]
            assert state.inflight == sum(held) == sum(m.inflight for m in state.members)
            assert all(m.inflight >= 0 for m in state.members)
        waiting = {t for q in self.core.queues.values() for t in q}
        assert waiting == set(self.desk.waiting)

    @invariant()
    def endpoints_of_a_model_stand_where_their_loads_put_them(self) -> None:
        for model in MODELS:
            queue = self.core.queues.get((model, INTERACTIVE))
            regular = [m.state for m in queue.members if not m.stands_in] if queue else []
            pools = {state.pool for state in regular}
            if len(regular) < 2:
                assert pools <= {None}
                continue
            (pool,) = pools
            assert set(pool.states) == set(regular)
            for state in regular:
                at = state.level, state.place
                pool.moved(state)
                assert (state.level, state.place) == at
                running = [g.ticket.affinity for g in self.desk.running if g.member.state is state]
                assert all(held <= running.count(key) for key, held in state.keys.items())
            startable = {s for s in regular if s.usable and s.inflight < s.limit}
            assert set(pool.by_load()) == startable

    @invariant()
    def guards_count_what_runs_and_never_sleep_through_their_time(self) -> None:
        for guard, rooms in self.guards().items():
            running = [g for g in self.desk.running if g.guard is guard]
            assert all(g.member.room in rooms or g in self.moved for g in running)
            chats = [g for g in running if g.member.interactive]
            assert guard.chats == len(chats)
            assert guard.bulk == len(running) - len(chats)
            assert guard._awaiting == sum(not g.answered for g in chats)
            only_held = any(self.only_the_guard_holds(m) for room in rooms for m in room.members)
            if only_held and not guard.bulk and guard.holds(self.desk.now):
                assert guard in self.core._dispatch.holding
                assert self.core.wake_at(self.desk.now) is not None

    def guards(self) -> dict:
        rooms = self.core.rooms.values()
        return {room.guard: room.guard.rooms for room in rooms if room.guard is not None}

    @invariant()
    def sums_are_what_they_sum_up(self) -> None:
        for room in self.core.rooms.values():
            assert room._gaps == sum(m.gap for m in room.members)
            assert room._priority_gaps == sum(m.gap for m in room.members if m.priority)
            assert room._priority_floors == sum(m.floor for m in room.members if m.priority)
            waits = [m for m in room.members if m.waiting and m.state.usable]
            assert set(room.hungry) == {m for m in waits if m.inflight < m.floor}
            assert set(room._starving) == {m for m in waits if not m.inflight}
            for member in room.members:
                assert member.gap == self.due(member)
                line = room.interactive if member.interactive else room.best_effort
                assert sum(m is member for _, _, m in line) == member.lined_up
        assert not self.core._dispatch.noted

    @invariant()
    def whoever_its_endpoint_would_admit_stands_in_line(self) -> None:
        for room in self.core.rooms.values():
            for member in room.members:
                if member is not room.turn:  # whoever has the turn is next without standing in line
                    assert member.lined_up or member.startable(room.turn) is None, member

    @invariant()
    def a_priority_floor_waits_for_nothing_but_its_endpoint(self) -> None:
        for state in self.core.states.values():
            member = state.native
            if not member.priority or not member.waiting or self.still_shrinks(member.room):
                continue
            light = self.slots(member) == 1
            if light and state.usable and member.inflight < member.floor:
                turn = member.room.turn
                assert state.inflight + 1 > state.limit or (turn and turn.state is state)

    @invariant()
    def no_slot_idles_while_someone_may_take_it(self) -> None:
        for room in self.core.rooms.values():
            if any(m.waiting and self.slots(m) > 1 for m in room.members):
                continue  # room may be being gathered for a heavy head
            for member in room.members:
                if member.waiting and room.turn in (None, member):
                    others = [m for m in room.members if m is not member]
                    assert not self.may_start(member, others), (member, room)

    @invariant()
    def whoever_waits_can_be_served_by_someone(self) -> None:
        for queue in self.core.queues.values():
            for ticket in queue:
                assert any(self.is_for(m, ticket) and self.alive(m) for m in queue.members)

    @invariant()
    def each_endpoint_is_offered_the_first_that_is_for_it(self) -> None:
        if self.core._dispatch.changing:  # what time has changed is known when somebody looks
            self.desk.see(self.core.tick(self.desk.now))
        for queue in self.core.queues.values():
            for member in queue.members:
                first = next((t for t in queue if self.is_for(member, t)), None)
                assert member.head is first
                assert member.waiting is (first is not None)

    def is_for(self, member, ticket) -> bool:
        """Which endpoint may take whom, said once more."""
        others = [m for m in member.queue.members if m.state.endpoint.id not in ticket.avoid]
        if member.state.endpoint.id in ticket.avoid:
            return not any(map(self.alive, others))
        regular = [m.state for m in others if not m.stands_in and self.alive(m)]
        in_service = (
            s._closed and not s._ramping and not s.rest.is_long(self.desk.now) for s in regular
        )
        return not member.stands_in or not any(in_service)

    def alive(self, member) -> bool:
        most = member.room.most(member)
        return (most is None or most > 0) and not member.state.broken(self.desk.now)

    def still_shrinks(self, room) -> bool:
        kept = sum(max(0, m.floor - m.inflight) for m in room.members if m.priority)
        if room.budget is None or room.inflight + kept <= room.budget:
            self.shrunk.discard(room)
        return room in self.shrunk

    @staticmethod
    def slots(member) -> int:
        return member.state.endpoint.slots_for(member.head)

    @staticmethod
    def due(member) -> int:
        """What must stay free for `member`."""
        wanted = member.state.usable and (member.waiting or member.inflight)
        return max(0, member.floor - member.inflight) if member.priority or wanted else 0

    def only_the_guard_holds(self, member) -> bool:
        others = [m for m in member.room.members if m is not member]
        if member.interactive or not member.waiting or member.room.turn not in (None, member):
            return False
        state = member.state
        if state.inflight and state.endpoint.slots_for(member.head) > 1:
            return False  # it may lack slots of its endpoint
        return self.fits(member, others)

    def may_start(self, member, others) -> bool:
        guard = None if member.interactive else member.room.guard
        return self.fits(member, others) and not (guard and guard.holds(self.desk.now))

    def fits(self, member, others) -> bool:
        """The rules, said once more, without sums."""
        state, room = member.state, member.room
        if not state.usable or state.inflight + 1 > state.limit:
            return False
        native = state.native
        if not member.interactive:
            if native.priority:
                reserve = max(0, min(native.floor, state.limit - 1) - native.inflight)
                if state.inflight + 1 + reserve > state.limit:
                    return False
            if member.inflight >= member.floor and any(m.waiting for m in member.yields_to):
                return False
        if room.budget is None:
            return True
        peers = [m for m in others if m.priority or member.inflight >= member.floor]
        if room.inflight + 1 + sum(map(self.due, peers)) > room.budget:
            return False
        yields = any(
            m.interactive and m.waiting and m.state.usable and m.state.inflight + 1 <= m.state.limit
            for m in others
        )
        return member.interactive or member.inflight < member.floor or not yields

    def teardown(self) -> None:
        if not hasattr(self, "desk"):
            return
        for _ in range(10_000):
            if self.desk.running:
                self.desk.finish(self.desk.running[0])
            elif self.desk.waiting:
                at = self.core.wake_at(self.desk.now)
                assert at is not None, "somebody waits, nothing runs, and time will not change it"
                self.desk.now = at
                self.desk.see(self.core.tick(at))
            else:
                break
        assert not self.desk.waiting
        for room in self.core.rooms.values():
            assert room.inflight == 0
            assert not room.hungry


TestAdmission = AdmissionMachine.TestCase
TestAdmission.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
