"""Entries whose servers are found while Forebay runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from forebay.config import InvalidConfig, Plan, plan_from
from forebay.core.model import ServiceClass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

SOURCE = "dns://vllm.lan:8000/v1"


def plan(
    *endpoints: dict[str, object],
    found: Mapping[str, Collection[str]] | None = None,
    **keys: object,
) -> Plan:
    entry = {"id": "m", "max_parallel_calls": 2, "endpoints": list(endpoints)}
    text = json.dumps({"chat_models": [entry], **keys})
    return plan_from(text, file="c.json", environ={}, found=found or {})


def hosts(*names: str) -> dict[str, list[str]]:
    return {SOURCE: [f"http://{name}:8000/v1" for name in names]}


def test_a_model_is_known_before_any_of_its_servers_is_found() -> None:
    made = plan({"discover": SOURCE})
    assert made.sources == (SOURCE,)
    assert made.endpoints == ()
    assert made.models["m"].endpoints == ()
    assert made.models["m"].service_class is ServiceClass.INTERACTIVE


def test_each_found_server_is_as_the_entry_says_and_on_a_gpu_of_its_own() -> None:
    made = plan({"discover": SOURCE, "max_concurrent_requests": 9}, found=hosts("a", "b"))
    assert [
        (p.endpoint.base_url, p.endpoint.gpu_group, p.endpoint.floor, p.endpoint.ceiling)
        for p in made.endpoints
    ] == [("http://a:8000/v1", "a:8000", 2, 9), ("http://b:8000/v1", "b:8000", 2, 9)]
    assert made.models["m"].endpoints == ("m@a:8000", "m@b:8000")


@pytest.mark.parametrize("group", [{"gpu_group": "g"}, {}])
def test_a_budget_for_what_is_still_to_be_found_is_no_mistake(group: dict[str, str]) -> None:
    assert plan({"discover": SOURCE, **group}, GPU_CONCURRENCY_BUDGETS={"g": 4}).warnings == ()


def test_found_servers_stand_beside_written_ones_and_count_once() -> None:
    written = {"base_url": "http://a:8000/v1"}
    made = plan(written, {"discover": SOURCE}, found=hosts("a", "b"))
    assert made.models["m"].endpoints == ("m@a:8000", "m@b:8000")


def test_a_group_with_the_host_s_name_joins_what_is_found_on_one_host() -> None:
    group, other = "gpu-{host}", "dns://embed.lan:7997/v1"
    chat = {"id": "m", "endpoints": [{"discover": SOURCE, "gpu_group": group}]}
    embedding = {"id": "e", "endpoints": [{"discover": other, "gpu_group": group}]}
    config = {
        "chat_models": [chat],
        "embedding_models": [embedding],
        "GPU_CONCURRENCY_BUDGETS": {group: 6, "gpu-b": 4},
    }
    found = hosts("a", "b") | {other: ["http://a:7997/v1", "http://b:7997/v1"]}
    made = plan_from(json.dumps(config), file="c.json", environ={}, found=found)
    assert {name: (g.budget, g.endpoints) for name, g in made.groups.items()} == {
        "gpu-a": (6, ("m@a:8000", "e@a:7997")),
        "gpu-b": (4, ("m@b:8000", "e@b:7997")),
    }
    assert not made.warnings


def test_a_warning_about_an_entry_is_told_once_however_many_servers_it_finds() -> None:
    made = plan({"discover": SOURCE, "max_concurrent_requests": 1}, found=hosts("a", "b"))
    assert [warning.code for warning in made.warnings] == ["floor_lowered"]


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ({}, "needs base_url or discover, one of the two"),
        ({"discover": SOURCE, "base_url": "http://a"}, "needs base_url or discover"),
        ({"discover": SOURCE, "metrics_url": "http://a/metrics"}, "metrics_url belongs to one"),
        ({"discover": "vllm.lan:8000"}, "names no source of endpoints"),
    ],
)
def test_what_cannot_be_meant_is_refused(endpoint: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        plan(endpoint)


def test_floors_that_do_not_fit_what_is_found_are_refused() -> None:
    endpoint = {"discover": SOURCE, "gpu_group": "gpu"}
    keys = {"GPU_CONCURRENCY_BUDGETS": {"gpu": 3}}
    assert plan(endpoint, found=hosts("a"), **keys).groups["gpu"].floors == 2
    with pytest.raises(InvalidConfig, match="add up to 4"):
        plan(endpoint, found=hosts("a", "b"), **keys)


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:8600", "[fd00::1]:53", "fd00::1"])
def test_a_name_server_is_an_address_with_or_without_a_port(text: str) -> None:
    own = {"discovery": {"nameservers": [text]}}
    assert plan({"discover": SOURCE}, forebay=own).config.forebay.discovery.nameservers == (text,)


@pytest.mark.parametrize("text", ["ns.lan", "127.0.0.1:0", "127.0.0.1:99999", "300.1.1.1", "x:y"])
def test_any_other_name_server_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"127\.0\.0\.1:8600"):
        plan({"discover": SOURCE}, forebay={"discovery": {"nameservers": [text]}})
