from __future__ import annotations

import pytest

from forebay.core.limits.fixed import Fixed
from forebay.core.model import Decision


def test_the_ceiling_is_the_limit() -> None:
    assert Fixed(2, 40).decision == Decision(40, "fixed")


@pytest.mark.parametrize("ceiling", [0, -3])
def test_no_endpoint_is_held_at_zero(ceiling: int) -> None:
    assert Fixed(0, ceiling).decision.limit == 1


def test_a_new_ceiling_holds_at_once() -> None:
    law = Fixed(1, 10)
    assert law.resize(floor=1, ceiling=10) is None
    assert law.resize(floor=1, ceiling=3) == Decision(3, "fixed")
    assert law.resize(floor=1, ceiling=5) == Decision(5, "fixed")
