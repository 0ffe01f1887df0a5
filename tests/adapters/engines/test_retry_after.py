from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.adapters.engines.retry_after import http_date, retry_after_s

NOW = datetime(2026, 9, 20, 10, 0, 0, tzinfo=UTC)


def delay(value: str, **others: str) -> float | None:
    headers = {"Retry-After": value} | {k.replace("_", "-"): v for k, v in others.items()}
    return retry_after_s(headers, now=NOW)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("0", 0),
        ("1.5", 1.5),
        ("99999999", 120),
        ("9" * 5000, 120),
        ("-3", None),
        ("+3", None),
        ("", None),
        ("abc", None),
        ("nan", None),
        ("inf", None),
        ("1e3", None),
        ("1_0", None),
        ("٣", None),
        ("5, 7", None),
        ("7 s", None),
    ],
)
def test_a_delay_in_seconds_is_taken_only_if_it_is_one(value: str, seconds: float | None) -> None:
    assert delay(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "Sun, 20 Sep 2026 10:00:30 GMT",
        "Sunday, 20-Sep-26 10:00:30 GMT",
        "Sun Sep 20 10:00:30 2026",
    ],
)
def test_a_date_in_any_of_its_three_forms_is_counted_from_now(value: str) -> None:
    assert delay(value) == 30


def test_a_date_counts_from_the_servers_own_clock_where_it_tells_it() -> None:
    ahead = "Sun, 20 Sep 2026 12:00:00 GMT"

    assert delay("Sun, 20 Sep 2026 12:00:20 GMT", date=ahead) == 20


def test_a_date_past_is_no_delay_and_one_far_away_is_capped() -> None:
    assert delay("Sun, 20 Sep 2026 09:59:00 GMT") == 0
    assert delay("Wed, 20 Sep 2056 10:00:00 GMT") == 120


@pytest.mark.parametrize(
    "value",
    [
        "Sun, 31 Feb 2026 10:00:30 GMT",
        "Sun, 20 Foo 2026 10:00:30 GMT",
        "Sun, 20 Sep 2026 25:00:30 GMT",
        "Sun, 20 Sep 0000 10:00:30 GMT",
        "Sun, 20 Sep 2026 10:00:30 +0200",
        "20 Sep 2026",
    ],
)
def test_a_date_that_cannot_be_is_none(value: str) -> None:
    assert delay(value) is None


def test_an_asctime_day_of_one_digit_is_padded_with_a_blank() -> None:
    assert http_date("Sun Nov  6 08:49:37 1994") == datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)


def test_milliseconds_are_preferred_being_finer() -> None:
    assert delay("1", retry_after_ms="250") == 0.25
    assert delay("1", retry_after_ms="soon") == 1
    assert retry_after_s({"retry-after-ms": "250"}, now=NOW) == 0.25


def test_no_header_is_no_delay() -> None:
    assert retry_after_s({}, now=NOW) is None


def test_the_name_is_found_in_any_case_and_the_cap_can_be_set() -> None:
    assert retry_after_s({"RETRY-AFTER": "90"}, now=NOW, cap_s=60) == 60


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")), st.text())
def test_nothing_raises_and_every_delay_is_within_bounds(value: str, date: str) -> None:
    headers = {"retry-after": value, "retry-after-ms": value, "date": date}
    seconds = retry_after_s(headers, now=NOW)

    assert seconds is None or 0 <= seconds <= 120


@given(st.from_regex(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", fullmatch=True))
def test_no_date_raises(value: str) -> None:
    seconds = delay(value)

    assert seconds is None or 0 <= seconds <= 120
