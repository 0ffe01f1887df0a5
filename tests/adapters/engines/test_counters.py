from __future__ import annotations

import pytest

from forebay.adapters.engines.counters import increase, mean_queue_s
from forebay.core.model import Signal


@pytest.mark.parametrize(
    ("before", "after", "grown"),
    [(9, 11, 2), (9, 9, 0), (40, 0, 0), (1.2e6, 310, 0), (None, 5, None), (5, None, None)],
)
def test_a_reset_is_no_growth_and_the_unknown_stays_unknown(
    before: float | None, after: float | None, grown: float | None
) -> None:
    assert increase(before, after) == grown


def signal(queue_seconds: float | None, queued: float | None) -> Signal:
    return Signal("vllm", 0.0, queue_seconds=queue_seconds, queued=queued)


def test_the_mean_queue_time_is_that_of_the_interval() -> None:
    assert mean_queue_s(signal(100, 50), signal(130, 60)) == 3
    assert mean_queue_s(None, signal(130, 65)) == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (signal(100, 50), signal(100, 50)),
        (signal(100, 50), signal(1, 2)),
        (signal(None, None), signal(100, 50)),
        (None, signal(None, None)),
    ],
    ids=["nobody-served", "reset", "unknown-before", "not-told"],
)
def test_without_anyone_served_there_is_no_mean_queue_time(
    before: Signal | None, after: Signal
) -> None:
    assert mean_queue_s(before, after) is None
