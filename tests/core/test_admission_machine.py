"""Whatever the order of events, admission keeps its promises."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.core.model import Ending, Outcome, Timing, TimingKind
from support.deployments import BEST_EFFORT, INTERACTIVE, Desk, admission, endpoint

MODELS = ("chat", "lite", "embed", "batch")


class AdmissionMachine(RuleBasedStateMachine):
    @initialize(
        floors=st.tuples(*[st.integers(1, 3)] * 4),
        ceilings=st.tuples(*[st.integers(1, 6)] * 4),
        slack=st.one_of(st.none(), st.integers(0, 6)),
        overtakes=st.integers(1, 4),
        hosts=st.integers(1, 2),
    )
    def build(self, floors, ceilings, slack, overtakes, hosts) -> None:
        made = [
            endpoint(
                model,
                group=f"gpu{host}",
                host=f"h{host}",
                interactive=model in ("chat", "lite"),
                floor=floor,
                ceiling=max(floor, ceiling),
            )
            for host in range(hosts)
            for model, floor, ceiling in zip(MODELS, floors, ceilings, strict=True)
        ]
        budgets = {} if slack is None else {f"gpu{h}": sum(floors) + slack for h in range(hosts)}
        self.core = admission(*made, budgets=budgets, max_overtakes=overtakes)
        self.desk = Desk(self.core)
        # Rooms whose budget moved: what ran then is never revoked, even where a floor needs it.
        self.shrunk = set()

    @rule(
        model=st.sampled_from(MODELS),
        service_class=st.sampled_from([INTERACTIVE, BEST_EFFORT]),
        weight=st.one_of(st.just(0), st.integers(1, 9)),
        patience=st.sampled_from([float("inf"), 5.0, 1.0]),
    )
    def ask(self, model, service_class, weight, patience) -> None:
        self.desk.ask(model, service_class, weight=weight, deadline=self.desk.now + patience)

    @rule(model=st.sampled_from(MODELS), count=st.integers(2, 8))
    def storm(self, model, count) -> None:
        for _ in range(count):
            self.desk.ask(model)

    @precondition(lambda self: self.desk.running)
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.OK, Outcome.CANCELLED]))
    def finish(self, data, outcome) -> None:
        grant = self.one_of(self.desk.running, data)
        self.desk.finish(grant, Ending(outcome))

    @precondition(lambda self: self.desk.running)
    @rule(data=st.data())
    def first_token(self, data) -> None:
        grant = self.one_of(self.desk.running, data)
        timing = Timing(TimingKind.FIRST_TOKEN, 0.1, 10)
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

    @rule(seconds=st.sampled_from([0.0, 0.5, 2.0, 1e6, -3.0]))
    def clock(self, seconds) -> None:
        self.desk.now = max(0.0, self.desk.now + seconds)
        self.desk.see(self.core.tick(self.desk.now))

    @rule(data=st.data(), slack=st.integers(0, 8))
    def move_budget(self, data, slack) -> None:
        room = self.one_of(list(self.core.rooms.values()), data)
        if room.budget is not None:
            floors = sum(m.floor for m in room.members)
            self.shrunk.add(room)
            self.desk.see(self.core.set_budget(room, floors + slack, self.desk.now))

    @rule(data=st.data(), ceiling=st.integers(1, 6))
    def move_limit(self, data, ceiling) -> None:
        state = self.one_of(list(self.core.states.values()), data)
        floor = state.native.floor
        self.desk.see(
            self.core.set_bounds(state.endpoint.id, floor, max(floor, ceiling), self.desk.now)
        )

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
    def a_priority_floor_waits_for_nothing_but_its_endpoint(self) -> None:
        for state in self.core.states.values():
            member = state.native
            if not member.priority or not member.waiting or self.still_shrinks(member.room):
                continue
            head = member.queue.head
            light = (head.weight or 1) == 1
            if light and member.inflight < member.floor:
                assert state.inflight + 1 > state.limit or self.has_the_turn(state.visitor)

    @invariant()
    def no_slot_idles_while_someone_may_take_it(self) -> None:
        for room in self.core.rooms.values():
            for member in room.members:
                head = member.queue.head
                if head is None or head.deadline <= self.desk.now:
                    continue
                others = [m for m in room.members if m is not member]
                if any((m.queue.head.weight if m.queue.head else 0) > 1 for m in room.members):
                    continue  # room may be being gathered for a heavy head
                if any(self.has_the_turn(m) for m in others):
                    continue
                assert not self.may_start(member, others), (member.queue.model, room)

    def still_shrinks(self, room) -> bool:
        kept = sum(max(0, m.floor - m.inflight) for m in room.members if m.priority)
        if room.budget is None or room.inflight + kept <= room.budget:
            self.shrunk.discard(room)
        return room in self.shrunk

    def has_the_turn(self, member) -> bool:
        return member.room.turn is member

    def may_start(self, member, others) -> bool:
        """The rules, said once more, without sums."""
        state, room = member.state, member.room
        if state.inflight + 1 > state.limit:
            return False
        sibling = member.sibling
        if not member.interactive:
            if sibling.priority:
                reserve = max(0, min(sibling.floor, state.limit - 1) - sibling.inflight)
                if state.inflight + 1 + reserve > state.limit:
                    return False
            if sibling.waiting and member.inflight >= member.floor:
                return False
        if room.budget is None:
            return True
        due = [m for m in others if m.priority]
        if member.inflight >= member.floor:
            due = [m for m in others if m.priority or m.waiting or m.inflight]
        kept = sum(max(0, m.floor - m.inflight) for m in due)
        if room.inflight + 1 + kept > room.budget:
            return False
        yields = any(
            m.interactive and m.waiting and m.state.inflight + 1 <= m.state.limit for m in others
        )
        return member.interactive or member.inflight < member.floor or not yields

    def teardown(self) -> None:
        if not hasattr(self, "desk"):
            return
        while self.desk.running:
            self.desk.finish(self.desk.running[0])
        self.desk.see(self.core.tick(self.desk.now))
        assert not self.desk.waiting, "somebody waits although nothing runs"
        for room in self.core.rooms.values():
            assert room.inflight == 0
            assert not room.hungry


TestAdmission = AdmissionMachine.TestCase
TestAdmission.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
