from __future__ import annotations

import json

import pytest

from forebay.config import Plan, plan_from


def plan(url: str, **keys: object) -> Plan:
    text = json.dumps({"chat_models": [{"id": "chat", "base_url": url, **keys}]})
    return plan_from(text, file="c.json", environ={})


@pytest.mark.parametrize(
    "page",
    [
        "/docs",
        "/docs/",
        "/redoc",
        "/openapi.json",
        "/health",
        "/metrics",
        "/v1/chat/completions",
        "/v1/models",
        "/api/chat",
        "/api/tags",
    ],
)
def test_a_page_is_read_as_its_server_with_a_warning(page: str) -> None:
    resolved = plan(f"http://gpu-a.lan:8000{page}")
    (planned,) = resolved.endpoints
    assert planned.url.api == "http://gpu-a.lan:8000/v1"
    assert planned.metrics_url == "http://gpu-a.lan:8000/metrics"
    (warning,) = resolved.warnings
    assert (warning.code, warning.key) == ("page_as_base_url", "chat_models[0].base_url")
    assert warning.where.startswith("c.json:1:")
    named = page.strip("/").removeprefix("v1/")
    assert f"ends in /{named}, " in warning.message
    assert "read as http://gpu-a.lan:8000/v1" in warning.message


def test_a_proxys_path_that_has_the_name_of_a_page_is_kept_where_the_prefix_follows() -> None:
    resolved = plan("https://llm.example.org/docs/v1")
    assert resolved.endpoints[0].url.api == "https://llm.example.org/docs/v1"
    assert resolved.warnings == ()
    (warning,) = plan("https://llm.example.org/docs").warnings
    assert "add /v1 if /docs is a proxy's path" in warning.message


def test_a_page_of_an_api_at_the_root_is_read_as_its_root() -> None:
    resolved = plan("http://gpu-b.lan:7997/embeddings", api_prefix="")
    assert resolved.endpoints[0].url.api == "http://gpu-b.lan:7997"
    (warning,) = resolved.warnings
    assert "ends in /embeddings, " in warning.message


def test_one_server_by_its_page_and_by_its_root_is_one() -> None:
    urls = ["http://gpu-a.lan:8000", "http://gpu-a.lan:8000/docs"]
    text = json.dumps({"chat_models": [{"id": "chat", "base_url": url} for url in urls]})
    resolved = plan_from(text, file="c.json", environ={})
    assert len(resolved.endpoints) == 1
    assert [w.code for w in resolved.warnings] == ["page_as_base_url", "duplicate_endpoint"]
