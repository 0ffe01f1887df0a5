from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.adapters.engines.batching import BatchLimits, limits_from_refusal

TOO_MANY = b'{"message":"batch size 214 > maximum allowed batch size 32","type":"Validation"}'
PYDANTIC = b'{"detail":[{"msg":"List should have at most 2048 items after validation, not 3000"}]}'
ARRAY = (
    b'{"error":{"message":"Invalid input: array too long. Expected an array with maximum length '
    b'2048, but got an array with length 3000 instead."}}'
)
TOO_LONG = b"Failed to buffer the request body: length limit exceeded"


@pytest.mark.parametrize(
    ("status", "body", "limits"),
    [
        (422, TOO_MANY, BatchLimits(max_inputs=32)),
        (413, TOO_MANY, BatchLimits(max_inputs=32)),
        (422, PYDANTIC, BatchLimits(max_inputs=2048)),
        (400, ARRAY, BatchLimits(max_inputs=2048)),
        (400, b"total number of texts must be at most 96 texts", BatchLimits(max_inputs=96)),
        (400, b"The batch size limit is 128.", BatchLimits(max_inputs=128)),
        (
            400,
            b"batch size is invalid, it should not be larger than 10.: input.contents",
            BatchLimits(max_inputs=10),
        ),
        (
            400,
            b"Requested 459473 tokens, max 300000 tokens per request",
            BatchLimits(max_tokens=300_000),
        ),
        (
            400,
            b"The max allowed tokens per submitted batch is 120000. Your batch has 154217 tokens",
            BatchLimits(max_tokens=120_000),
        ),
        (413, TOO_LONG, BatchLimits(max_body_bytes=2_000_000)),
        (413, b"<html>413 Request Entity Too Large</html>", BatchLimits()),
        (200, TOO_MANY, BatchLimits()),
    ],
)
def test_a_refusal_tells_its_limit(status: int, body: bytes, limits: BatchLimits) -> None:
    assert limits_from_refusal(status, body) == limits


@given(st.integers(), st.binary())
def test_no_refusal_raises(status: int, body: bytes) -> None:
    limits_from_refusal(status, body)


def test_a_limit_is_never_below_one() -> None:
    body = b"batch size 1 > maximum allowed batch size 0"

    assert limits_from_refusal(422, body).max_inputs == 1


limits = st.builds(BatchLimits, *[st.none() | st.integers(1, 99)] * 4)


@given(limits, limits, limits)
def test_what_keeps_within_both_does_so_in_any_order(a, b, c):
    assert a.within(b) == b.within(a)
    assert a.within(b).within(c) == a.within(b.within(c))
    assert a.within(a) == a.within(BatchLimits()) == a


@given(limits, limits)
def test_what_is_said_counts_before_what_is_said_elsewhere(one, other):
    both = one.or_else(other)
    assert both.or_else(one) == both
    assert one.or_else(BatchLimits()) == one == BatchLimits().or_else(one)
