"""When refusals and time-outs call for a lower limit."""

from __future__ import annotations

from forebay.core.limits.strain import Strain


def test_where_nothing_is_answered_nobody_is_served() -> None:
    strain = Strain()
    strain.begin(0.0)
    for _ in range(3):
        strain.loss(5.0)
    assert strain.served(16, drain_s=1.0, now=5.0) == 0


def test_what_is_refused_at_random_takes_no_room_and_calls_for_nothing() -> None:
    strain = Strain()
    strain.begin(0.0)
    for _ in range(100):
        strain.answer(16)
        strain.loss(0.001)
    assert strain.served(16, drain_s=1.0, now=5.0) is None


def test_what_waits_for_its_time_out_is_not_served() -> None:
    strain = Strain()
    strain.begin(0.0)
    for _ in range(10):
        strain.answer(16)
        strain.loss(4.0)
    assert strain.served(16, drain_s=1.0, now=5.0) == 16 - 8


def test_an_endpoint_that_takes_half_of_the_limit_says_so_by_what_is_in_flight() -> None:
    strain = Strain()
    strain.begin(0.0)
    for _ in range(10):
        strain.answer(8)
        strain.loss(0.001)
    served = strain.served(16, drain_s=1.0, now=5.0)
    assert served is not None
    assert 7.9 < served < 8


def test_it_waits_until_what_was_in_flight_has_ended_and_then_begins_anew() -> None:
    strain = Strain()
    strain.begin(0.0)
    strain.loss(0.1)
    strain.loss(0.1)
    assert strain.served(16, drain_s=0.0, now=5.0) is None
    strain.loss(0.1)
    assert strain.served(16, drain_s=6.0, now=5.0) is None
    assert strain.served(16, drain_s=6.0, now=6.0) == 0
    assert strain.served(16, drain_s=0.0, now=7.0) is None
