"""Where nobody waits, a request starts and ends by a shorter way. Both ways must come to the same.

The same events go to two admissions. One of them is kept from every shortcut: its rooms always
believe that somebody waits, and its endpoints that a look is due.
"""

from __future__ import annotations

from itertools import cycle
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.breaker import BreakerSettings
from forebay.core.limits.fixed import Fixed
from forebay.core.model import (
    Ending,
    EngineState,
    Outcome,
    Refusal,
    Signal,
    Ticket,
    Timing,
    TimingKind,
)
from forebay.core.queue import QueueBounds
from support.deployments import BEST_EFFORT, INTERACTIVE, OK, admission, endpoint

CHATS = ("chat", "lite")
MODELS = (*CHATS, "embed", "batch")


class Restless(Fixed):
    """Moves its limit with every second request that ends."""

    def __init__(self, floor, ceiling) -> None:
        super().__init__(floor, ceiling)
        self._limits = cycle((floor, floor, ceiling, ceiling))

    def on_end(self, *_, **__):
        return self.resize(floor=1, ceiling=next(self._limits))


# Mostly that it serves, or there would be little to admit.
SAID = (None, *[EngineState.AWAKE] * 4, EngineState.ASLEEP, EngineState.LOADING)

deployments = st.fixed_dictionaries(
    {
        "floors": st.tuples(*[st.integers(1, 3)] * 4),
        "ceilings": st.tuples(*[st.integers(2, 8)] * 4),
        "slot_weights": st.tuples(*[st.integers(1, 2)] * 4),
        "tokens_per_slot": st.sampled_from([None, 10]),
        "slack": st.sampled_from([None, 0, 1, 2, 3, 6]),
        "overtakes": st.integers(0, 3),
        "law": st.sampled_from([Fixed, Restless]),
    }
)
seconds = st.sampled_from([0.1, 1.0, 20.0, 40.0])
pick = st.integers(0, 99)
asks = st.tuples(
    st.just("ask"),
    st.sampled_from(MODELS),
    st.sampled_from([None, None, None, INTERACTIVE, BEST_EFFORT]),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([0, 0, 0, 9, 15]),
    st.sampled_from([inf, inf, inf, 5.0, 0.0]),
)
endings = st.one_of(
    st.just(OK),
    st.just(OK),
    st.builds(Ending, st.sampled_from(Outcome)),
    st.just(Ending(Outcome.CONGESTION, retry_after_s=2.0)),
)
ends = st.tuples(st.just("end"), pick, endings)
others = (
    st.tuples(st.just("tick")),
    st.tuples(st.just("first_token"), pick),
    st.tuples(st.just("give_up"), pick),
    st.tuples(st.just("pass_time"), seconds),
    st.tuples(st.just("break_down"), pick, st.sampled_from([0.0, 20.0])),
    st.tuples(st.just("hear"), pick, st.sampled_from(SAID)),
    st.tuples(st.just("move_bounds"), pick, st.integers(2, 8)),
)
kinds = st.sampled_from([*[asks] * 12, *[ends] * 6, *others])  # `one_of` knows no weights
events = st.lists(kinds.flatmap(lambda kind: kind), min_size=40, max_size=80)


class Twin:
    """An admission with the grants and tickets that are out, oldest first."""

    def __init__(self, plan, *, shortcuts: bool) -> None:
        made = [
            endpoint(
                model,
                interactive=model in CHATS,
                floor=floor,
                ceiling=max(floor, ceiling),
                slot_weight=slot_weight,
                tokens_per_slot=plan["tokens_per_slot"],
            )
            for model, floor, ceiling, slot_weight in zip(
                MODELS, plan["floors"], plan["ceilings"], plan["slot_weights"], strict=True
            )
        ]
        slack = plan["slack"]
        self.core = admission(
            *made,
            budgets={} if slack is None else {"gpu": slack + sum(e.floor for e in made)},
            law=lambda e: plan["law"](e.floor, e.ceiling),
            max_overtakes=plan["overtakes"],
            breaker=BreakerSettings(fail_threshold=2),
            bounds=QueueBounds(max_requests=6),
        )
        self.shortcuts = shortcuts
        self.now = 0.0
        self.asked = 0
        self.waiting = {}
        self.running = []
        if not shortcuts:
            for room in self.core.rooms.values():
                room.waiting += 1

    def play(self, event):
        """Do what `event` says, and return what followed from it."""
        if not self.shortcuts:
            for state in self.core.states.values():
                state.calm = False
        kind, *details = event
        return [self.see(verdict) for verdict in getattr(self, kind)(*details)]

    def see(self, verdict):
        serial = self.waiting.pop(verdict.ticket)
        if isinstance(verdict, Refusal):
            return serial, verdict.reason, verdict.retry_after_s
        self.running.append(verdict)
        member = verdict.member
        return serial, member.index, member.room.name, verdict.weight, verdict.pass_

    def ask(self, model, service_class, weight, tokens, patience):
        if service_class is None:
            service_class = INTERACTIVE if model in CHATS else BEST_EFFORT
        ticket = Ticket(
            model, service_class, self.now, self.now + patience, weight, size_tokens=tokens
        )
        self.waiting[ticket] = self.asked = self.asked + 1
        return self.core.request(ticket, self.now)

    def end(self, number, ending):
        if not self.running:
            return []
        grant = self.running.pop(number % len(self.running))
        return self.core.release(grant, ending, self.now)

    def break_down(self, number, seconds):
        verdicts = []
        state = list(self.core.states.values())[number % len(self.core.states)]
        for grant in [g for g in self.running if g.member.state is state]:
            self.running.remove(grant)
            verdicts += self.core.release(grant, Ending(Outcome.FAILURE), self.now)
        self.now += seconds
        return verdicts + self.core.tick(self.now)

    def first_token(self, number):
        if not self.running:
            return []
        grant = self.running[number % len(self.running)]
        return self.core.timing(grant, Timing(TimingKind.FIRST_TOKEN, 0.1, 10.0), self.now)

    def give_up(self, number):
        if not self.waiting:
            return []
        ticket = list(self.waiting)[number % len(self.waiting)]
        del self.waiting[ticket]
        return self.core.cancel(ticket, self.now)

    def pass_time(self, seconds):
        self.now += seconds
        return []

    def tick(self):
        return self.core.tick(self.now)

    def hear(self, number, state):
        endpoint_id = sorted(self.core.states)[number % len(self.core.states)]
        signal = state and Signal("vllm", at=self.now, state=state)
        return self.core.signal(endpoint_id, signal, self.now)

    def move_bounds(self, number, ceiling):
        endpoint_id = sorted(self.core.states)[number % len(self.core.states)]
        return self.core.set_bounds(endpoint_id, 1, ceiling, self.now)

    def sums(self):
        """Everything that later decisions depend on."""
        return (
            self.core.live,
            self.core.wake_at(self.now),
            [(s.inflight, s.limit, s.usable, s.service_s) for s in self.core.states.values()],
            [
                (
                    *(room.inflight, room._gaps, room._priority_gaps, room._virtual_time),
                    room.turn and room.turn.index,
                    [m.index for m in room.hungry],
                    [m.index for m in room._starving],
                    [(m.inflight, m.gap, m.virtual_time, m.lined_up) for m in room.members],
                )
                for room in self.core.rooms.values()
            ],
        )


@given(plan=deployments, events=events)
@settings(max_examples=400, deadline=None)
def test_the_short_way_comes_to_the_same_as_the_long_one(plan, events) -> None:
    short, long = Twin(plan, shortcuts=True), Twin(plan, shortcuts=False)
    for event in events:
        assert short.play(event) == long.play(event)
        assert short.sums() == long.sums()


def test_a_request_that_finds_nobody_waiting_never_enters_the_queue(monkeypatch) -> None:
    core = admission(endpoint("chat", floor=1, ceiling=2), budgets={"gpu": 2})
    queue = core.queues["chat", INTERACTIVE]
    monkeypatch.setattr(type(queue), "join", None)  # to call it would fail
    for _ in range(2):
        grants = core.request(Ticket("chat", INTERACTIVE, 0.0), 0.0)
        assert [g.endpoint.model for g in grants] == ["chat"]
    core.release(grants[0], OK, 1.0)
    assert core.live == 1
