"""Which readings say anything of the limit that is in force."""

from __future__ import annotations

import pytest

from forebay.core.limits.intake import Intake
from forebay.core.limits.pace import Level, Reading


def read(intake: Intake, inflight: int) -> bool:
    return intake.ended(Reading(1.0, 1.0, inflight), now=10.0)


@pytest.mark.parametrize(("inflight", "counts"), [(20, True), (18, True), (17, False)])
def test_what_ends_counts_while_the_limit_is_in_use(inflight: int, counts: bool) -> None:
    assert read(Intake(20), inflight) is counts


def test_what_is_as_much_in_use_as_a_level_was_counts_like_that() -> None:
    level = Level(20)
    level.readings.extend([Reading(1.0, 1.0, 10)] * 4)
    intake = Intake(20)
    intake.count_like(level)
    assert read(intake, 9)
    assert not read(intake, 8)


def test_a_level_of_which_nothing_was_read_says_nothing() -> None:
    intake = Intake(20)
    intake.count_like(Level(20))
    assert not read(intake, 17)
