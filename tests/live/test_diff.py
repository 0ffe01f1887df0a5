"""What leads from one configuration to the next, in an order that breaks no promise in between."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.config import InvalidConfig, Plan, plan_from
from forebay.config.settings import ForebaySettings
from forebay.live.diff import (
    UNTIL_RESTART,
    Add,
    Drain,
    Move,
    Reconnect,
    SetBudget,
    Update,
    diff,
    until_restart,
)

A, B = "m@a.lan:8000", "m@b.lan:8000"


def entry(host: str = "a.lan", **more: object) -> dict[str, object]:
    return {"id": "m", "base_url": f"http://{host}:8000", **more}


def plan(*chat: dict[str, object], **keys: object) -> Plan:
    text = json.dumps({"chat_models": chat or [entry()], **keys})
    return plan_from(text, file="c.json", environ={})


def kinds(before: Plan, after: Plan) -> list[tuple[str, str]]:
    return [
        (
            type(step).__name__,
            step.group if isinstance(step, SetBudget) else step.planned.endpoint.id,
        )
        for step in diff(before, after).steps
    ]


def test_a_file_that_says_the_same_leads_nowhere() -> None:
    same = diff(plan(), plan(entry(note="for people")))
    assert not same.steps
    assert str(same) == "nothing changed"


def test_endpoints_come_and_go_by_their_ids() -> None:
    found = diff(plan(entry("a.lan")), plan(entry("b.lan")))
    assert kinds(plan(entry("a.lan")), plan(entry("b.lan"))) == [("Drain", A), ("Add", B)]
    assert str(found) == f"added {B}; removed {A}"


def test_other_numbers_change_an_endpoint_in_place() -> None:
    before, after = plan(), plan(entry(max_parallel_calls=3, max_concurrent_requests=9))
    (step,) = diff(before, after).steps
    assert isinstance(step, Update)
    assert (step.planned.endpoint.floor, step.planned.endpoint.ceiling) == (3, 9)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"api_key": "secret-of-the-server"}, "api_key"),
        ({"engine": "vllm"}, "engine none->vllm"),
        ({"first_byte_s": 5}, "first_byte_s none->5"),
        ({"metrics_url": "http://a.lan:9/metrics?key=secret"}, "metrics_url"),
        ({"base_url": "http://a.lan:8000/v1?key=secret"}, "base_url"),
    ],
)
def test_another_way_to_reach_an_endpoint_keeps_the_endpoint(
    more: dict[str, object], told: str
) -> None:
    found = diff(plan(), plan(entry() | more))
    assert [type(step) for step in found.steps] == [Reconnect]
    assert str(found) == f"changed {A} ({told})", "and tells no secret"


def test_what_moves_is_told_with_its_numbers() -> None:
    before = plan(
        entry(max_parallel_calls=2, max_batch_items=8),
        forebay={"timeouts": {"request_s": 30.5}, "api_keys": [{"name": "n", "key": "sk-hidden1"}]},
        GPU_CONCURRENCY_BUDGETS={"a.lan:8000": 6},
    )
    servers = [
        {"base_url": "http://a.lan:8000", "max_concurrent_requests": 9, "tokens_per_slot": 512},
        {"base_url": "http://c.lan"},
        {"discover": "srv://_llm._tcp.lan/v1"},
    ]
    after = plan({"id": "m", "endpoints": servers}, GPU_CONCURRENCY_BUDGETS={"a.lan:8000": 4})
    moved = "floor 2->1, ceiling 32->9, tokens_per_slot none->512, max_batch_items 8->none"
    assert diff(before, after).words == (
        "added m@c.lan:80",
        f"changed {A} ({moved})",
        "budget of a.lan:8000 6->4",
        "source added srv://_llm._tcp.lan/v1",
        "set forebay.api_keys, forebay.timeouts.request_s 30.5->600",
    )


def test_a_line_does_not_grow_with_the_number_of_endpoints() -> None:
    many = [entry(f"host-{n:03}.lan") for n in range(300)]
    text = str(diff(plan(), plan(*many)))
    assert text.startswith("added m@host-000.lan:8000, m@host-001.lan:8000, ")
    assert text.endswith(f"m@host-019.lan:8000 and 280 more; removed {A}")


def test_another_api_path_changes_both_the_endpoint_and_its_client() -> None:
    assert kinds(plan(), plan(entry(api_prefix=""))) == [("Update", A), ("Reconnect", A)]


def test_an_endpoint_moves_to_another_gpu_before_it_has_a_floor_there() -> None:
    after = plan(entry(gpu_group="other"))
    assert kinds(plan(), after) == [("Move", A), ("Update", A)]
    assert str(diff(plan(), after)) == f"changed {A} (gpu_group a.lan:8000->other)"


def test_an_endpoint_that_stays_keeps_its_class_until_a_restart() -> None:
    found = diff(plan(), plan(entry(role="batch")))
    assert str(found) == f"changed {A} (role chat->batch)"
    assert [type(step) for step in found.steps] == [Update], "the role is a label"
    later = diff(plan(entry(role="batch")), plan(entry(role="batch", slot_weight=2)))
    assert [type(step) for step in later.steps] == [Update]


def test_budgets_are_told_with_their_numbers() -> None:
    budgets = {"GPU_CONCURRENCY_BUDGETS": {"a.lan:8000": 6}}
    assert diff(plan(), plan(**budgets)).steps == (SetBudget("a.lan:8000", 6),)
    assert str(diff(plan(**budgets), plan())) == "budget of a.lan:8000 6->none"


def test_a_budget_of_a_group_that_nobody_is_in_yet_is_not_forgotten() -> None:
    before = plan(GPU_CONCURRENCY_BUDGETS={"gpu": 4, "a.lan:8000": 4})
    after = plan(GPU_CONCURRENCY_BUDGETS={"a.lan:8000": 4})
    assert diff(before, after).steps == (SetBudget("gpu", None),)


@pytest.mark.parametrize(
    ("own", "key", "values"),
    [
        ({"queue": {"max_requests": 3}}, "forebay.queue.max_requests", " 1024->3"),
        ({"timeouts": {"request_s": 3}}, "forebay.timeouts.request_s", " 600->3"),
        ({"log_level": "debug"}, "forebay.log_level", ""),
        ({"api_keys": [{"name": "n", "key": "sk-hidden-hidden"}]}, "forebay.api_keys", ""),
    ],
)
def test_settings_that_are_in_force_at_once_are_named(
    own: dict[str, Any], key: str, values: str
) -> None:
    found = diff(plan(), plan(forebay=own))
    assert found.settings == (key,)
    assert not found.steps
    assert str(found) == f"set {key}{values}"


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"forebay": {"limit": "fixed"}}, "forebay.limit"),
        ({"forebay": {"protection": {}}}, "forebay.protection"),
        ({"forebay": {"identity": None}}, "forebay.identity"),
        ({"MODEL_BREAKER_FAIL_THRESHOLD": 9}, "MODEL_BREAKER_FAIL_THRESHOLD"),
        ({"forebay": {"timeouts": {"probe_s": 3}}}, "forebay.timeouts.probe_s"),
    ],
)
def test_settings_of_what_runs_already_wait_for_a_restart(keys: dict[str, Any], key: str) -> None:
    assert until_restart(plan(), plan(**keys)) == (key,)
    assert not until_restart(plan(**keys), plan(**keys))
    assert not diff(plan(), plan(**keys))


def test_every_setting_is_followed_or_waits_for_a_restart() -> None:
    """A new one has to be put to the one or to the other."""
    at_once = {
        "api_keys",
        "body_limit_bytes",
        "discovery",
        "log_level",
        "queue",
        "scrape_interval_s",
        "sse_keepalive_s",
        "timeouts",
    }
    later = {key.split(".")[1] for key in UNTIL_RESTART if key.startswith("forebay.")}
    assert at_once | later == set(ForebaySettings.model_fields)


def test_another_routing_is_in_force_at_once() -> None:
    assert str(diff(plan(), plan(entry(routing="hrw")))) == "set routing of m hrw"


def test_clients_are_made_anew_where_their_times_change() -> None:
    after = plan(forebay={"timeouts": {"connect_s": 1}})
    assert kinds(plan(), after) == [("Reconnect", A)]


@st.composite
def configs(draw: st.DrawFn) -> Plan | None:
    """A configuration of a few hosts on two GPUs; None where it must not start."""
    hosts = draw(st.lists(st.sampled_from("abcd"), min_size=1, unique=True))
    chat = [
        entry(
            host,
            gpu_group=draw(st.sampled_from(["x", "y"])),
            max_parallel_calls=draw(st.integers(1, 6)),
        )
        for host in hosts
    ]
    budgets = draw(st.dictionaries(st.sampled_from(["x", "y"]), st.integers(1, 12)))
    try:
        return plan(*chat, GPU_CONCURRENCY_BUDGETS=budgets)
    except InvalidConfig:
        return None


def state_of(of: Plan) -> tuple[dict[str, tuple[str, int]], dict[str, int]]:
    floors = {p.endpoint.id: (p.endpoint.gpu_group, p.endpoint.floor) for p in of.endpoints}
    return floors, of.budgets


@given(configs(), configs())
def test_no_step_lets_the_floors_of_a_gpu_exceed_its_budget(
    before: Plan | None, after: Plan | None
) -> None:
    if before is None or after is None:
        return
    floors, budgets = state_of(before)
    for step in diff(before, after).steps:
        if isinstance(step, SetBudget):
            budgets.pop(step.group, None)
            if step.budget is not None:
                budgets[step.group] = step.budget
        else:
            endpoint = step.planned.endpoint
            if isinstance(step, Drain):
                del floors[endpoint.id]
            elif isinstance(step, Move):
                assert endpoint.id in floors
                floors[endpoint.id] = (endpoint.gpu_group, 0)
            elif isinstance(step, Update):
                assert endpoint.id in floors
                floors[endpoint.id] = (endpoint.gpu_group, endpoint.floor)
            elif isinstance(step, Add):
                assert endpoint.id not in floors
                floors[endpoint.id] = (endpoint.gpu_group, endpoint.floor)
        for name, budget in budgets.items():
            assert sum(floor for group, floor in floors.values() if group == name) <= budget
    assert (floors, budgets) == state_of(after)
