from __future__ import annotations

import pytest

from forebay.adapters.engines.reply import Reply, as_count, as_number, header

BROKEN_GZIP = Reply(200, {}, b"\x1f\x8bnonsense")


@pytest.mark.parametrize("status", [404, 405, 501])
def test_some_statuses_say_that_there_is_no_such_page(status: int) -> None:
    assert Reply(status, {}, b"").absent


@pytest.mark.parametrize("body", [b"", b"{", b"not json", b"[" * 100_000, b"1" * 5_000])
def test_what_is_not_json_is_none(body: bytes) -> None:
    assert Reply(200, {}, body).json() is None


def test_a_page_that_cannot_be_unpacked_is_not_json() -> None:
    assert BROKEN_GZIP.json() is None


@pytest.mark.parametrize("value", [True, "7", None, [], float("nan"), float("inf"), 10**400])
def test_what_is_not_a_finite_number_is_none(value: object) -> None:
    assert as_number(value) is None


def test_a_count_is_a_whole_number_above_zero() -> None:
    assert (as_count(32), as_count(32.0), as_count(0), as_count(-1)) == (32, 32, None, None)


def test_a_header_is_found_in_any_case() -> None:
    assert header({"Content-Type": "text/html"}, "content-type") == "text/html"
    assert header({}, "content-type") == ""
