"""What a record is asked afterwards."""

from __future__ import annotations

from math import isnan, nan

import pytest

from forebay.core.model import Outcome, ServiceClass
from forebay.sim import Record, Request, Size, jain, percentile


def test_percentiles_are_nearest_rank() -> None:
    values = [15.0, 20.0, 35.0, 40.0, 50.0]
    assert [percentile(values, p) for p in (0.05, 0.3, 0.4, 0.5, 1.0)] == [15, 20, 20, 35, 50]
    assert percentile([nan, 3.0, nan], 0.5) == 3.0
    assert isnan(percentile([], 0.5))


def test_jain_is_one_for_equals_and_one_nth_for_a_hog() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([3.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert isnan(jain([0.0, 0.0]))


def request(ended_at: float, outcome: Outcome | None = Outcome.OK, model: str = "a") -> Request:
    return Request(
        model,
        ServiceClass.INTERACTIVE,
        Size(10, 5),
        asked_at=ended_at - 5.0,
        started_at=ended_at - 4.0,
        first_token_at=ended_at - 2.0,
        ended_at=ended_at,
        outcome=outcome,
    )


def test_a_span_counts_what_ended_in_it_and_got_its_answer() -> None:
    record = Record(
        seconds=20.0,
        requests=[
            request(6.0),
            request(12.0),
            request(13.0, Outcome.FAILURE),
            request(14.0, model="b"),
            request(nan, None),
        ],
    )
    chosen = record.select("a", since=10.0)
    assert [r.ended_at for r in chosen.requests] == [12.0, 13.0]
    assert [r.ended_at for r in chosen.answered] == [12.0]
    assert chosen.requests_per_s == 1 / 10
    assert chosen.work_per_s == 5 / 10
    assert record.select(service_class=ServiceClass.BEST_EFFORT).requests == []


def test_a_request_tells_what_its_user_saw() -> None:
    seen = request(10.0)
    assert (seen.queued_s, seen.first_token_s, seen.total_s) == (1.0, 3.0, 5.0)
    assert seen.output_token_s == 2.0 / 4
    seen.size = Size(10, 1)
    assert isnan(seen.output_token_s)


def test_work_over_time_is_counted_where_it_ended() -> None:
    record = Record(
        seconds=15.0, requests=[request(1.0), request(4.0), request(14.0), request(16.0)]
    )
    assert record.work_over_time(every_s=5.0) == [2.0, 0.0, 1.0]
    assert record.work_over_time("b") == [0.0, 0.0, 0.0]
