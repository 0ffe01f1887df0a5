"""Who gets no slot, and is told so at once: unknown models, full queues, deadlines."""

from __future__ import annotations

from forebay.core.model import Ending, Outcome, Reason
from forebay.core.queue import QueueBounds
from support.deployments import BEST_EFFORT, INTERACTIVE, Desk, admission, endpoint


def one_model(ceiling: int = 32, **more) -> Desk:
    return Desk(admission(endpoint("chat", ceiling=ceiling), **more))


def reasons(desk: Desk) -> list[Reason]:
    return [refusal.reason for refusal in desk.refused]


def test_an_unknown_model_is_refused() -> None:
    desk = one_model()
    desk.ask("gpt-9", INTERACTIVE)
    assert reasons(desk) == [Reason.UNKNOWN_MODEL]
    assert desk.core.cancel(desk.refused[0].ticket, 0.0) == []


# -- bounds of the queue -------------------------------------------------------------------------


def test_a_queue_of_enough_requests_answers_at_once_with_a_time_to_come_back() -> None:
    desk = one_model(1, bounds=QueueBounds(max_requests=2))
    desk.ask_many("chat", 4)
    assert (reasons(desk), desk.refused[0].retry_after_s) == ([Reason.QUEUE_FULL], 1)
    assert len(desk.waiting) == 2


def test_a_queue_of_enough_bytes_answers_at_once() -> None:
    desk = one_model(1, bounds=QueueBounds(max_bytes=100))
    desk.ask("chat")
    desk.ask("chat", size_bytes=60)
    desk.ask("chat", size_bytes=41)
    assert reasons(desk) == [Reason.QUEUE_FULL]
    desk.ask("chat", size_bytes=40)
    assert len(desk.waiting) == 2


def test_the_bounds_are_for_those_that_wait() -> None:
    desk = one_model(1, bounds=QueueBounds(max_requests=0, max_bytes=10))
    desk.ask("chat", size_bytes=1000)
    assert len(desk.running) == 1
    desk.ask("chat")
    assert reasons(desk) == [Reason.QUEUE_FULL]
    assert not desk.waiting


def test_whoever_leaves_the_queue_makes_space_in_it() -> None:
    desk = one_model(1, bounds=QueueBounds(max_requests=1, max_bytes=10))
    desk.ask("chat")
    desk.give_up(desk.ask("chat", size_bytes=10))
    desk.ask("chat", size_bytes=10)
    assert not desk.refused


def test_each_class_has_a_queue_of_its_own() -> None:
    desk = one_model(1, bounds=QueueBounds(max_requests=1))
    desk.ask_many("chat", 2)
    desk.ask("chat", BEST_EFFORT)
    assert not desk.refused


def test_the_time_to_come_back_follows_how_long_requests_take() -> None:
    desk = one_model(2, bounds=QueueBounds(max_requests=4))
    desk.ask_many("chat", 6)
    desk.now = 10.0
    desk.finish(desk.running[0])
    desk.ask_many("chat", 2)
    assert desk.refused[0].retry_after_s == 20, "four wait, two at a time, ten seconds each"
    desk.now = 20.0
    desk.finish(desk.running[0], Ending(Outcome.CANCELLED))  # says nothing of how long they take
    desk.ask_many("chat", 2)
    assert desk.refused[-1].retry_after_s == 20
    desk.now = 30.0
    desk.finish(desk.running[0])
    desk.ask_many("chat", 2)
    assert desk.refused[-1].retry_after_s == 22, "a running mean, of 10 and then 20"


def test_nobody_is_told_to_stay_away_for_longer_than_a_minute() -> None:
    desk = one_model(1, bounds=QueueBounds(max_requests=9))
    desk.ask_many("chat", 10)
    desk.now = 1000.0
    desk.finish(desk.running[0])
    desk.ask_many("chat", 2)
    assert desk.refused[-1].retry_after_s == 60


# -- deadlines -----------------------------------------------------------------------------------


def test_a_request_whose_deadline_has_passed_is_refused_at_once() -> None:
    desk = one_model()
    desk.now = 5.0
    desk.ask("chat", deadline=5.0)
    assert reasons(desk) == [Reason.DEADLINE]


def test_a_request_never_starts_at_or_after_its_deadline() -> None:
    desk = one_model(1)
    running = desk.ask("chat")
    late = [desk.ask("chat", deadline=5.0), desk.ask("chat", deadline=4.0)]
    last = desk.ask("chat", deadline=5.1)
    desk.now = 5.0
    desk.finish(desk.running[0])
    assert [r.ticket for r in desk.refused] == late
    assert set(reasons(desk)) == {Reason.DEADLINE}
    assert [g.ticket for g in desk.running] == [last]
    assert running not in desk.waiting


def test_bulk_work_gets_its_floors_room_once_the_last_request_is_too_late() -> None:
    desk = Desk(
        admission(
            endpoint("embed", interactive=False, floor=2),
            endpoint("rerank", interactive=False),
            budgets={"gpu": 4},
        )
    )
    desk.ask_many("rerank", 6)
    assert desk.counts("rerank") == (4,)
    desk.ask("embed", deadline=5.0, weight=2)
    desk.now = 6.0
    desk.finish(desk.running[0])
    desk.finish(desk.running[0])
    assert reasons(desk) == [Reason.DEADLINE]
    assert desk.counts("rerank") == (4,)
