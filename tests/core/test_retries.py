"""When a request that failed at one endpoint is tried at another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay.core.breaker import BreakerSettings
from forebay.core.model import Ending, EngineState, Outcome, Reason, Signal
from forebay.core.queue import QueueBounds
from forebay.core.retries import Retries, may_go_elsewhere
from forebay.core.retry import RetryBudget
from support.deployments import Desk, admission, endpoint

FAILURES = [
    Outcome.FAILURE,
    Outcome.TIMEOUT,
    Outcome.CONGESTION,
    Outcome.LOADING,
    Outcome.CONFIGURATION,
]


class Budget:
    """A retry budget that is used up after so many."""

    def __init__(self, left=100):
        self.left, self.requests = left, 0

    def note_request(self):
        self.requests += 1

    def try_retry(self):
        self.left -= 1
        return self.left >= 0


class Setting:
    """One model on some hosts, and a request for it."""

    def __init__(self, *hosts, left=100):
        made = [endpoint("m", group=host, host=host) for host in hosts]
        self.core = admission(*made, breaker=BreakerSettings(fail_threshold=1))
        self.budget = Budget(left)
        self.retries = Retries(self.core, {"m": self.budget})
        self.desk = Desk(self.core)
        self.desk.ask("m", deadline=100.0)

    def fail(self, outcome=Outcome.FAILURE):
        """End the request that runs, and return where it may be tried again."""
        (grant,) = self.desk.running
        self.desk.finish(grant, Ending(outcome))
        return self.retries.again(grant.ticket, grant.endpoint.id, outcome, self.desk.now)

    def ask(self, ticket):
        self.desk.waiting.append(ticket)
        self.desk.see(self.core.request(ticket, self.desk.now))
        return self.desk.running[-1].endpoint.id


@pytest.mark.parametrize("outcome", FAILURES)
def test_what_another_endpoint_may_do_better_is_tried_there(outcome):
    ticket = Setting("a", "b").fail(outcome)
    assert len(ticket.avoid) == 1
    assert ticket.deadline == 100.0


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - set(FAILURES)))
def test_a_wrong_request_and_one_that_nobody_waits_for_are_not(outcome):
    assert Setting("a", "b").fail(outcome) is None


class WithAStandIn(Setting):
    """Some hosts, and ``f`` that stands in for them."""

    def __init__(self, *hosts, left=100):
        super().__init__(*hosts, left=left)
        made = [endpoint("m", group=host, host=host) for host in hosts]
        stand_in = endpoint("m", group="f", host="f", fallback_of="m")
        self.core = admission(*made, stand_in, breaker=BreakerSettings(fail_threshold=1))
        self.retries = Retries(self.core, {"m": self.budget})
        self.desk = Desk(self.core)
        self.desk.ask("m", deadline=100.0)


def test_what_an_only_endpoint_refuses_for_load_goes_to_its_stand_in_and_costs_nothing():
    setting = WithAStandIn("a", left=0)
    assert setting.ask(setting.fail(Outcome.CONGESTION)) == "m@f"
    assert setting.budget.left == 0
    assert setting.fail(Outcome.CONGESTION) is None, "there is nobody else"


def test_a_stand_in_takes_no_failures_beyond_the_budget():
    setting = WithAStandIn("a", left=0)
    assert setting.fail(Outcome.FAILURE) is None


def test_a_stand_in_comes_after_the_endpoints_that_may_have_room():
    setting = WithAStandIn("a", "b", left=1)
    assert setting.ask(setting.fail(Outcome.CONGESTION)) in {"m@a", "m@b"}
    assert setting.budget.left == 0
    assert setting.ask(setting.fail(Outcome.CONGESTION)) == "m@f"


def test_the_last_attempt_of_what_is_refused_for_load_is_at_the_stand_in():
    setting = WithAStandIn("a", "b", "c", "d")
    assert setting.ask(setting.fail(Outcome.CONGESTION)) != "m@f"
    assert setting.ask(setting.fail(Outcome.CONGESTION)) == "m@f"
    assert setting.budget.left == 99


def test_without_a_budget_for_them_a_stand_in_comes_at_once():
    setting = WithAStandIn("a", "b", left=0)
    again = setting.fail(Outcome.CONGESTION)
    assert (again.attempt, setting.ask(again)) == (2, "m@f")


def test_none_waits_for_an_endpoint_that_rests_while_a_stand_in_is_there():
    setting = WithAStandIn("a", "b")
    (here,) = (grant.endpoint.id for grant in setting.desk.running)
    (rests,) = {"m@a", "m@b"} - {here}
    state = setting.core.states[rests]
    state.rest.until = 4.0
    state.look(0.0)
    assert setting.ask(setting.fail(Outcome.CONGESTION)) == "m@f"


def test_an_only_endpoint_is_not_asked_twice():
    setting = Setting("a")
    assert setting.fail(Outcome.CONGESTION) is None
    assert setting.budget.left == 100


def test_it_never_waits_for_a_broken_endpoint():
    setting = Setting("a", "b")
    (grant,) = setting.desk.running
    (other,) = set(setting.core.states) - {grant.endpoint.id}
    setting.core.signal(other, Signal("vllm", 0.0, EngineState.ASLEEP), 0.0)
    assert setting.fail() is None


def test_no_endpoint_is_asked_twice_and_three_are_enough():
    setting = Setting("a", "b", "c", "d")
    first = setting.desk.running[0].endpoint.id
    second = setting.ask(setting.fail())
    ticket = setting.fail()
    assert ticket.avoid == {first, second}
    third = setting.ask(ticket)
    assert len({first, second, third}) == 3
    assert setting.fail() is None


def test_endpoints_that_it_never_went_to_are_no_attempts():
    setting = Setting("a", "b", "c", "d")
    here = setting.desk.running[0].endpoint.id
    unfit = frozenset(sorted(set(setting.core.states) - {here})[:2])
    (grant,) = setting.desk.running
    setting.desk.finish(grant, Ending(Outcome.FAILURE))
    ticket = replace(grant.ticket, avoid=unfit)
    again = setting.retries.again(ticket, here, Outcome.FAILURE, 0.0)
    assert setting.ask(again) not in {here, *unfit}


def test_who_had_a_slot_goes_before_those_that_had_none_in_the_order_in_which_they_failed():
    core = admission(*(endpoint("m", group=host, host=host, ceiling=2) for host in "ab"))
    desk, retries = Desk(core), Retries(core, {})
    first_come = desk.ask_many("m", 20)
    at_a = [g for g in desk.running if g.endpoint.id == "m@a"]
    lost = []
    for grant in at_a:
        lost.append(retries.again(grant.ticket, "m@a", Outcome.FAILURE, 0.0))
        desk.waiting.append(lost[-1])
        desk.see(core.request(lost[-1], 0.0))
    assert [ticket.asked_at for ticket in lost] == [0.0, 0.0]
    at_b = [g for g in desk.running if g.endpoint.id == "m@b"]
    for grant in at_b:
        desk.finish(grant)
    now_at_b = [g.ticket for g in desk.running if g.endpoint.id == "m@b"]
    assert now_at_b == lost
    desk.finish(at_a[0])
    assert desk.running[-1].ticket is first_come[4]


def test_who_had_a_slot_finds_space_in_a_queue_that_is_full():
    hosts = (endpoint("m", group=host, host=host, ceiling=1) for host in "ab")
    core = admission(*hosts, bounds=QueueBounds(max_requests=3))
    desk, retries = Desk(core), Retries(core, {})
    desk.ask_many("m", 6)
    assert [refusal.reason for refusal in desk.refused] == [Reason.QUEUE_FULL]
    lost = desk.running[0]
    again = retries.again(lost.ticket, lost.endpoint.id, Outcome.FAILURE, 0.0)
    desk.waiting.append(again)
    desk.see(core.request(again, 0.0))
    assert len(desk.refused) == 1
    assert again in desk.waiting


def test_a_deadline_that_is_over_ends_it():
    setting = Setting("a", "b")
    setting.desk.now = 100.0
    assert setting.fail() is None


@pytest.mark.parametrize("outcome", [Outcome.FAILURE, Outcome.TIMEOUT, Outcome.CONGESTION])
def test_a_used_up_budget_ends_it(outcome):
    setting = Setting("a", "b", left=0)
    assert setting.fail(outcome) is None


def test_a_probe_needs_no_budget():
    """After an outage that used it up, the first to try the endpoint again is nobody's victim."""
    setting = Setting("a", "b", left=0)
    (grant,) = setting.desk.running
    setting.desk.finish(grant, Ending(Outcome.FAILURE))
    where = grant.endpoint.id
    assert setting.retries.again(grant.ticket, where, Outcome.FAILURE, 0.0) is None
    again = setting.retries.again(grant.ticket, where, Outcome.FAILURE, 0.0, probe=True)
    assert again.avoid == {where}


@pytest.mark.parametrize("outcome", [Outcome.LOADING, Outcome.CONFIGURATION])
def test_what_was_refused_before_any_work_needs_no_budget(outcome):
    setting = Setting("a", "b", left=0)
    assert setting.fail(outcome) is not None
    assert setting.budget.left == 0


def test_a_probe_that_fails_is_tried_elsewhere_whatever_was_used_up():
    setting = Setting("a", "b", left=0)
    (grant,) = setting.desk.running
    setting.desk.finish(grant, Ending(Outcome.FAILURE))
    failed = (grant.ticket, grant.endpoint.id, Outcome.FAILURE, 0.0)
    assert setting.retries.again(*failed, probe=True) is not None
    assert setting.budget.left == 0
    assert setting.retries.again(*failed) is None


def test_a_ticket_sent_back_to_where_it_failed_is_not_tried_again():
    setting = Setting("a", "b")
    grant = setting.desk.running[0]
    ticket = replace(grant.ticket, avoid=frozenset({grant.endpoint.id}))
    assert setting.retries.again(ticket, grant.endpoint.id, Outcome.FAILURE, 0.0) is None


def test_requests_are_counted_against_what_is_tried_again():
    setting = Setting("a", "b")
    setting.retries.note(setting.desk.running[0].ticket)
    assert setting.budget.requests == 1


def test_budgets_follow_the_models_that_there_are():
    retries = Retries(Setting("a").core, {"m": RetryBudget(2), "old": RetryBudget(2)})
    retries.budgets["m"].try_retry()
    retries.follow({"m": RetryBudget(5), "new": RetryBudget(3)})
    assert {model: budget.left for model, budget in retries.budgets.items()} == {"m": 4, "new": 3}


def test_a_model_without_a_budget_is_tried_again_all_the_same():
    setting = Setting("a", "b")
    retries = Retries(setting.core, {})
    (grant,) = setting.desk.running
    retries.note(grant.ticket)
    setting.desk.finish(grant, Ending(Outcome.FAILURE))
    again = retries.again(grant.ticket, grant.endpoint.id, Outcome.FAILURE, 0.0)
    assert again.avoid == {grant.endpoint.id}


def test_an_answer_is_kept_back_only_where_another_endpoint_may_do_better():
    assert all(map(may_go_elsewhere, FAILURES))
    assert not may_go_elsewhere(Outcome.OK)
    assert not may_go_elsewhere(Outcome.CLIENT_ERROR)
