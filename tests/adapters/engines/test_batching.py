from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.adapters.engines.batching import BatchLimits, limits_from_refusal

TOO_MANY = b'{"message":"batch size 214 > maximum allowed batch size 32","type":"Validation"}'
PYDANTIC = b'{"detail":[{"msg":"List should have at most 2048 items after validation, not 3000"}]}'
TOO_LONG = b"Failed to buffer the request body: length limit exceeded"


@pytest.mark.parametrize(
    ("status", "body", "limits"),
    [
        (422, TOO_MANY, BatchLimits(max_inputs=32)),
        (413, TOO_MANY, BatchLimits(max_inputs=32)),
        (422, PYDANTIC, BatchLimits(max_inputs=2048)),
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
