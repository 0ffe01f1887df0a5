"""What a file promises is what its admission does."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.config import Plan, load, plan_from
from forebay.config.build import admission_of, retry_budgets
from forebay.config.laws import FixedSettings
from forebay.core.model import Ending, Outcome, Reason
from forebay.core.observer import Observer
from forebay.core.retries import Retries
from support.deployments import Desk

EXAMPLES = Path(__file__).parent / "examples"


def desk_of(plan: Plan) -> Desk:
    """A deployment whose limits are at their ceilings."""
    plan = replace(plan, law=FixedSettings(law="fixed"))
    return Desk(admission_of(plan, random.Random(0), Observer()))


def example(name: str) -> Desk:
    return desk_of(load(EXAMPLES / name, environ={}))


def plan(**keys: object) -> Plan:
    chat = {"id": "chat", "base_url": "http://gpu-a.lan:8000", "gpu_group": "gpu"}
    text = json.dumps({"chat_models": [chat], **keys})
    return plan_from(text, file="c.json", environ={})


def test_on_one_gpu_embeddings_leave_chat_its_floor_and_yield_to_it() -> None:
    desk = example("one_gpu.json")
    chat, embedder = "qwen3.6-27b", "bge-m3"
    desk.ask_many(embedder, 100)
    assert desk.counts(chat, embedder) == (0, 5)
    desk.ask_many(chat, 20)
    assert desk.counts(chat, embedder) == (1, 5)
    while len(desk.of(embedder)) > 1:
        desk.finish(desk.of(embedder)[0])
    assert desk.counts(chat, embedder) == (5, 1)
    desk.finish(desk.of(embedder)[0])
    assert desk.counts(chat, embedder) == (5, 1), "slowed, never stopped"


@pytest.mark.parametrize(
    ("name", "chat", "embedder", "most"),
    [
        ("two_gpus.json", "<llm>", "<embed>", (32, 16)),
        ("embedder_with_fallback.json", "qwen3.6-27b", "bge-m3", (20, 16)),
    ],
)
def test_on_gpus_of_their_own_neither_model_takes_anything_from_the_other(
    name: str, chat: str, embedder: str, most: tuple[int, int]
) -> None:
    desk = example(name)
    desk.ask_many(embedder, 100)
    assert desk.counts(chat, embedder) == (0, most[1])
    desk.ask_many(chat, 100)
    assert desk.counts(chat, embedder) == most


def test_the_settings_of_the_breaker_are_those_of_the_file() -> None:
    desk = desk_of(
        plan(
            MODEL_BREAKER_FAIL_THRESHOLD=2,
            MODEL_BREAKER_BASE_COOLDOWN_S=50,
            MODEL_BREAKER_BACKOFF_FACTOR=3,
            MODEL_BREAKER_MAX_COOLDOWN_S=100,
        )
    )
    pauses = []
    for failures in (2, 1, 1):
        desk.ask_many("chat", failures)
        for grant in list(desk.running):
            desk.finish(grant, Ending(Outcome.FAILURE))
        desk.ask("chat")
        pauses.append(desk.refused[-1].retry_after_s)
        desk.now += 1000
    assert desk.refused[-1].reason is Reason.UNAVAILABLE
    assert pauses == pytest.approx([50, 100, 100], rel=0.1)


def test_without_a_breaker_nothing_is_left_alone() -> None:
    desk = desk_of(plan(MODEL_CIRCUIT_BREAKER=False))
    for _ in range(10):
        desk.ask("chat")
        desk.finish(desk.running[0], Ending(Outcome.FAILURE))
    desk.ask("chat")
    assert len(desk.running) == 1


def test_bounds_of_the_queue_and_of_overtaking_are_those_of_the_file() -> None:
    desk = desk_of(plan(forebay={"queue": {"max_requests": 3}, "max_overtakes": 1}))
    desk.ask_many("chat", 32 + 4)
    assert [refusal.reason for refusal in desk.refused] == [Reason.QUEUE_FULL]
    assert {room.max_overtakes for room in desk.core.rooms.values()} == {1}


@pytest.mark.parametrize("threshold", [1, 3, 7])
def test_whatever_a_lost_primary_strands_is_done_at_the_fallback(threshold: int) -> None:
    embedder = {"id": "embed", "base_url": "http://gpu-b.lan:8000", "max_concurrent_requests": 6}
    fallback = {"id": "embed", "base_url": "http://gpu-a.lan:8001", "gpu_group": "gpu"}
    made = plan(
        embedding_models=[{**embedder, "fallback": fallback}],
        MODEL_BREAKER_FAIL_THRESHOLD=threshold,
    )
    desk = desk_of(made)
    retries = Retries(desk.core, retry_budgets(made))
    for ticket in desk.ask_many("embed", 40):
        retries.note(ticket)
    primary = "embed@gpu-b.lan:8000"
    while lost := [grant for grant in desk.running if grant.endpoint.id == primary]:
        desk.finish(lost[0], Ending(Outcome.FAILURE))
        again = retries.again(lost[0].ticket, primary, Outcome.FAILURE, desk.now)
        assert again is not None
        desk.waiting.append(again)
        desk.see(desk.core.request(again, desk.now))
    assert not desk.refused
    assert len(desk.running) + len(desk.waiting) == 40


@pytest.mark.parametrize(
    ("breaker", "burst"),
    [
        ({}, 2 * (8 + 2)),
        ({"MODEL_BREAKER_FAIL_THRESHOLD": 1}, 2 * 8),
        ({"MODEL_BREAKER_FAIL_THRESHOLD": 1000}, 2 * (8 + 8)),
        ({"MODEL_CIRCUIT_BREAKER": False}, 2 * 8),
    ],
)
def test_what_a_loss_strands_may_be_tried_again(breaker: dict[str, object], burst: int) -> None:
    """Those that run, and those that start until the breaker opens."""
    hosts = [{"base_url": f"http://gpu-{n}.lan", "max_concurrent_requests": 8} for n in "ab"]
    embedder = {"id": "embed", "endpoints": hosts}
    assert retry_budgets(plan(embedding_models=[embedder], **breaker))["embed"].burst == burst
