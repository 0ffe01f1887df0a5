"""Where a limit goes from a level."""

from __future__ import annotations

from forebay.core.limits.course import Course, Room
from forebay.core.limits.first import Begin


def crowded(limit: int, floor: int) -> Course:
    """A limit at which every first token waits."""
    course = Course(limit)
    course.room, course.now = Room(floor, 2 * limit), 0.0
    for _ in range(32):
        course.intake.begun(Begin(0.0, limit, 1.0))
    return course


def next_try_s(course: Course) -> float:
    """How long after a move the next try of more is, in usual times."""
    course.schedule.moved(0.0, 1.0)
    return next(float(after) for after in range(1000) if course.schedule.more_is_due(after))


def test_first_tokens_that_wait_bring_it_down_and_put_off_the_next_try() -> None:
    course = crowded(16, floor=1)
    before = next_try_s(course)
    step = course.ease()
    assert step is not None
    assert step.limit < 16
    assert next_try_s(course) == 2 * before


def test_at_the_floor_they_are_no_try_that_failed() -> None:
    course = crowded(16, floor=16)
    before = next_try_s(course)
    assert [course.ease() for _ in range(5)] == [None] * 5
    assert next_try_s(course) == before
