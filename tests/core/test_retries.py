"""When a request that failed at one endpoint is tried at another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay.core.breaker import BreakerSettings
from forebay.core.model import Ending, EngineState, Outcome, Signal
from forebay.core.retries import Retries, may_go_elsewhere
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


def test_a_deadline_that_is_over_ends_it():
    setting = Setting("a", "b")
    setting.desk.now = 100.0
    assert setting.fail() is None


def test_a_used_up_budget_ends_it():
    setting = Setting("a", "b", left=0)
    assert setting.fail() is None


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
