"""A mean number of requests in flight that is no whole number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.protection.pace import Pace


def mean_inflight(share: float, piece_s: float, *, put_off: bool = False) -> float:
    """Start whatever may start, for a long time, and average."""
    pace, now, ends, area = Pace(patience_s=0.5), 0.0, [], 0.0
    pace.forgive(0.0)
    while now < 500 * piece_s:
        while not pace.holds(len(ends), share, put_off=put_off):
            ends.append(now + piece_s)
            assert len(ends) <= -(-share // 1)
        then = min([*ends, pace.opens_at(len(ends), share, now, put_off=put_off)])
        area += len(ends) * (then - now)
        pace.pass_time(len(ends), share, then)
        now = then
        ends = [end for end in ends if end > now]
    return area / now


@given(share=st.floats(0.1, 5.0), piece_s=st.floats(0.05, 5.0), put_off=st.booleans())
def test_the_mean_in_flight_is_the_share(share, piece_s, put_off) -> None:
    assert mean_inflight(share, piece_s, put_off=put_off) == pytest.approx(share, rel=0.05)


def test_whole_slots_never_pause() -> None:
    pace = Pace()
    assert not pace.holds(1, 2.0, put_off=True)
    assert pace.holds(2, 2.0, put_off=False)


def test_a_start_is_put_off_for_its_patience_only() -> None:
    pace = Pace(patience_s=0.4)
    pace.pass_time(0, 0.5, 0.0)
    assert pace.holds(0, 0.5, put_off=True)
    assert not pace.holds(0, 0.5, put_off=False)
    at = pace.opens_at(0, 0.5, 0.0, put_off=True)
    assert at == pytest.approx(0.4)
    pace.pass_time(0, 0.5, at)
    assert not pace.holds(0, 0.5, put_off=True)


def test_a_clock_that_goes_back_costs_nothing() -> None:
    pace = Pace()
    pace.pass_time(1, 0.5, 10.0)
    pace.pass_time(1, 0.5, 5.0)
    assert pace.debt_s == 0
    pace.pass_time(1, 0.5, 6.0)
    assert pace.debt_s == pytest.approx(0.5)
