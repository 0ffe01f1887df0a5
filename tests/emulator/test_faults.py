from __future__ import annotations

import random

import pytest
from pydantic import TypeAdapter, ValidationError

from forebay.emulator import EngineName, Fault, Faults, Hang, Html, Loading, Slow, Status

CHAT, EMBEDDING = EngineName
PATH = "/v1/chat/completions"


def faults(*initial: Fault, seed: int = 0) -> Faults:
    return Faults(initial, random.Random(seed))


def take(active: Faults, engine: EngineName = CHAT, path: str = PATH) -> Fault | None:
    return active.take(engine, path, inference=path == PATH)


def test_a_fault_hits_inference_requests_of_its_engine_only() -> None:
    hang = Hang(engine=CHAT)
    active = faults(hang)
    assert take(active) is hang
    assert take(active, EMBEDDING) is None
    assert take(active, path="/metrics") is None


def test_a_fault_with_a_path_hits_that_path_only() -> None:
    hang = Hang(engine=CHAT, path="/metrics")
    active = faults(hang)
    assert take(active) is None
    assert take(active, path="/metrics") is hang


def test_loading_hits_every_path() -> None:
    loading = Loading(engine=CHAT)
    assert take(faults(loading), path="/health") is loading


def test_a_fault_ends_after_its_hits() -> None:
    active = faults(Hang(engine=CHAT, next=2), Html(engine=CHAT))
    assert [take(active).kind for _ in range(4)] == ["hang", "hang", "html", "html"]


def test_what_is_active_is_counted_down() -> None:
    active = faults(Hang(engine=CHAT, next=2))
    take(active)
    assert active.active() == [Hang(engine=CHAT, next=1)]
    take(active)
    assert active.active() == []


def test_chance_is_repeatable_and_near_its_probability() -> None:
    def hits(seed: int) -> list[bool]:
        active = faults(Hang(engine=CHAT, probability=0.3), seed=seed)
        return [take(active) is not None for _ in range(1000)]

    assert hits(1) == hits(1) != hits(2)
    assert sum(hits(1)) == pytest.approx(300, abs=50)


def test_faults_are_cleared_by_engine_or_all() -> None:
    active = faults(Hang(engine=CHAT), Hang(engine=EMBEDDING), Html(engine=CHAT))
    active.clear(CHAT)
    assert active.active() == [Hang(engine=EMBEDDING)]
    active.clear()
    assert active.active() == []


def test_slow_slows_steps_and_hits_no_request() -> None:
    active = faults(Slow(engine=CHAT, factor=3, next=1), Slow(engine=CHAT, factor=2))
    assert take(active) is None
    assert [active.slowdown(CHAT) for _ in range(3)] == [6, 2, 2]
    assert active.slowdown(EMBEDDING) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "hang"},
        {"kind": "hang", "engine": "printer"},
        {"kind": "hang", "engine": "chat", "next": 0},
        {"kind": "hang", "engine": "chat", "probability": 0},
        {"kind": "hang", "engine": "chat", "path": "metrics"},
        {"kind": "status", "engine": "chat", "status": 200},
        {"kind": "slow", "engine": "chat"},
        {"kind": "slow", "engine": "chat", "factor": 2, "path": "/metrics"},
    ],
)
def test_faults_that_make_no_sense_are_refused(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Fault).validate_python(wrong)


def test_a_fault_survives_the_way_through_json() -> None:
    fault = Status(engine=CHAT, status=429, retry_after="7", next=3)
    adapter = TypeAdapter(Fault)
    assert adapter.validate_json(adapter.dump_json(fault)) == fault


def test_a_fault_can_hit_by_what_is_asked_for() -> None:
    poison, large = (
        Status(engine=CHAT, status=500, containing="poison"),
        Hang(engine=CHAT, over_bytes=20),
    )
    active = faults(poison, large)

    def hits(body: bytes) -> Fault | None:
        return active.take(CHAT, PATH, body, inference=True)

    assert hits(b"a poison b") is poison
    assert hits(b"x" * 20) is None
    assert hits(b"x" * 21) is large
