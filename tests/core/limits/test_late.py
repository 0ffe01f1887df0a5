"""First tokens that are all late: because of what is in flight, or for another reason."""

from __future__ import annotations

from forebay.core.limits.late import Late


def add(late: Late, inflight: int, steps: float, times: int = 40) -> bool:
    return True in [late.add(steps, inflight) for _ in range(times)]


def test_as_late_with_half_in_flight_is_not_for_what_is_in_flight() -> None:
    late = Late()
    assert not add(late, 32, 100.0)
    assert not add(late, 24, 100.0)  # too little less to tell
    assert add(late, 12, 90.0)


def test_less_late_with_half_in_flight_is_for_what_is_in_flight() -> None:
    late = Late()
    assert not add(late, 32, 100.0)
    assert not add(late, 12, 37.0)


def test_a_queue_that_still_grows_is_one() -> None:
    late = Late()
    assert not add(late, 32, 100.0)
    assert True not in [late.add(100.0 + 20 * n, 12) for n in range(40)]


def test_the_first_of_many_that_come_in_at_once_wait_least_and_do_not_count() -> None:
    late = Late()
    assert True not in [late.add(10.0 * n, 64) for n in range(1, 65)]
    assert not add(late, 16, 160.0)
