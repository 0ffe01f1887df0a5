"""An outage does not double the load: retries are a small part of the requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.retry import RetryBudget


def test_as_many_as_an_outage_strands_are_retried_at_once_and_no_more() -> None:
    budget = RetryBudget(burst=8)
    assert [budget.try_retry() for _ in range(10)] == [True] * 8 + [False] * 2


def test_ten_requests_earn_one_retry() -> None:
    budget = RetryBudget(burst=4)
    while budget.try_retry():
        pass
    for _ in range(9):
        budget.note_request()
    assert not budget.try_retry()
    budget.note_request()
    assert budget.left == 1
    assert budget.try_retry()


def test_a_long_quiet_time_earns_no_more_than_the_burst() -> None:
    budget = RetryBudget(burst=2)
    for _ in range(1000):
        budget.note_request()
    assert budget.left == 2


def test_whoever_raises_the_burst_lets_more_be_earned() -> None:
    budget = RetryBudget(burst=1)
    budget.burst = 3
    for _ in range(20):
        budget.note_request()
    assert budget.left == 3


@given(burst=st.integers(0, 20), events=st.lists(st.booleans(), max_size=300))
def test_no_more_than_a_tenth_and_the_burst_is_ever_retried(burst, events) -> None:
    budget = RetryBudget(burst)
    requests = retries = 0
    for is_request in events:
        if is_request:
            budget.note_request()
            requests += 1
        else:
            retries += budget.try_retry()
        assert retries <= burst + requests / 10
        assert budget.left <= burst


def test_a_burst_that_grows_comes_full_and_one_that_shrinks_takes_its_part_along() -> None:
    budget = RetryBudget(4)
    budget.try_retry()
    budget.resize(10)
    assert budget.left == 9
    budget.resize(2)
    assert budget.left == 1
    budget.resize(0)
    assert budget.left == 0
