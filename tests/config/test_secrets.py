"""An API key never appears, wherever it was put."""

from __future__ import annotations

import copy
import json
import string
import traceback
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.config import Plan, plan_from
from forebay.errors import ConfigError

ISSUED = st.text(string.ascii_letters + string.digits, min_size=16, max_size=40).map("sk-{}".format)
WRONG_URLS = [
    "http://{}@h/v1",
    "http://u:{}@h:x/v1",
    "http://u:a/b{}@h",
    "u:{}@h",
    "http:/u:{}@h",
    "http//u:{}@h",
    "http://h:x/v1?key={}",
]
# Keys of one's own bear no mark; they are known by the place that they stand in.
OWN = st.text(string.ascii_letters + string.digits, min_size=24, max_size=40)

CONFIG: dict[str, Any] = {
    "chat_models": [
        {
            "id": "chat",
            "base_url": "http://gpu-a.lan:8000/v1",
            "gpu_group": "gb10",
            "role": "chat",
            "engine": "vllm",
            "api_key": "KEY",
            "api_prefix": "/v1",
            "metrics_url": "http://gpu-a.lan:8000/metrics",
            "max_concurrent_requests": 8,
        }
    ],
    "embedding_models": [
        {
            "id": "bge-m3",
            "endpoints": [{"base_url": "http://gpu-b.lan:7997", "api_key": "KEY"}],
            "fallback": {"id": "bge-m3", "base_url": "http://gpu-c.lan:7997", "api_key": "KEY"},
        }
    ],
    "GPU_CONCURRENCY_BUDGETS": {"gb10": 6},
    "GPU_RESERVED_ROLES": ["chat"],
    "MODEL_CIRCUIT_BREAKER": True,
    "forebay": {
        "limit": {"law": "gradient_aimd", "backoff": 0.8},
        "timeouts": {"connect_s": 5},
        "api_keys": [{"name": "me", "key": "KEY", "admin": True}],
        "log_level": "info",
    },
}


def with_key(value: object, key: str) -> Any:
    return json.loads(json.dumps(value).replace('"KEY"', json.dumps(key)))


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path] * bool(path) + [p for name, item in items for p in places(item, (*path, name))]


PLACES = places(CONFIG)


def placed(config: Any, path: tuple[Any, ...], value: object, *, as_name: bool) -> Any:
    config = copy.deepcopy(config)
    holder = config
    for part in path[:-1]:
        holder = holder[part]
    if as_name and isinstance(holder, dict):
        holder[value] = holder.pop(path[-1])
    else:
        holder[path[-1]] = value
    return config


def told(text: str, environ: dict[str, str] | None = None) -> tuple[str, Plan | None]:
    """Everything that a person or a log could see of loading `text`."""
    try:
        plan = plan_from(text, file="c.json", environ=environ or {})
    except ConfigError as error:
        return str(error) + repr(error) + "".join(traceback.format_exception(error)), None
    return repr(plan) + "".join(map(str, plan.warnings)), plan


@settings(deadline=None)
@given(ISSUED, st.sampled_from(PLACES), st.sampled_from(["value", "list", "object", "name"]))
def test_a_key_in_any_wrong_place_is_not_told(key: str, path: tuple[Any, ...], form: str) -> None:
    value: Any = {"list": [key], "object": {"x": key}}.get(form, key)
    config = placed(with_key(CONFIG, "unused"), path, value, as_name=form == "name")
    assert key not in told(json.dumps(config))[0]


@settings(deadline=None)
@given(OWN, st.sampled_from(PLACES), st.sampled_from(["value", "list", "object", "name"]))
def test_a_key_that_also_stands_where_keys_stand_is_told_nowhere_in_an_error(
    key: str, path: tuple[Any, ...], form: str
) -> None:
    value: Any = {"list": [key], "object": {"x": key}}.get(form, key)
    config = placed(with_key(CONFIG, key), path, value, as_name=form == "name")
    text, plan = told(json.dumps(config))
    assert plan is not None or key not in text


@settings(deadline=None)
@given(OWN)
def test_keys_of_the_right_places_are_in_no_plan(key: str) -> None:
    config = with_key(CONFIG, key)
    config["forebay"]["api_keys"][0]["key"] = f"{key}2"
    text, plan = told(json.dumps(config))
    assert plan is not None
    assert key not in text
    held = plan.endpoints[0].api_key
    assert held is not None
    assert held.get_secret_value() == key


@settings(deadline=None)
@given(ISSUED, st.integers(0))
def test_a_key_dropped_anywhere_in_the_text_is_not_told(key: str, offset: int) -> None:
    text = json.dumps(with_key(CONFIG, "unused"))
    offset %= len(text) + 1
    shown, plan = told(f"{text[:offset]}{key}{text[offset:]}")
    assert plan is not None or key not in shown


@settings(deadline=None)
@given(OWN, st.sampled_from(WRONG_URLS))
def test_a_key_inside_a_wrong_url_is_not_told(key: str, url: str) -> None:
    config = with_key(CONFIG, "unused")
    config["chat_models"][0]["base_url"] = url.format(key)
    assert key not in told(json.dumps(config))[0]


@settings(deadline=None)
@given(OWN)
def test_a_key_in_the_query_of_a_url_is_not_told(key: str) -> None:
    config = with_key(CONFIG, "unused")
    config["chat_models"][0]["base_url"] += f"?code={key}"
    config["chat_models"][0]["metrics_url"] += f"?code={key}"
    text, plan = told(json.dumps(config))
    assert plan is not None
    assert key not in text


@settings(deadline=None)
@given(OWN, st.sampled_from(["apikey", "API_KEY", "token", "secret", "password", "authorization"]))
def test_a_key_under_a_name_that_does_not_exist_is_not_told(key: str, name: str) -> None:
    config = with_key(CONFIG, "unused")
    config["chat_models"][0][name] = key
    text, plan = told(json.dumps(config))
    assert plan is None
    assert key not in text


@settings(deadline=None)
@given(OWN, st.sampled_from(PLACES))
def test_a_key_from_a_variable_is_not_told(key: str, path: tuple[Any, ...]) -> None:
    config = placed(with_key(CONFIG, "${KEY}"), path, "${KEY}", as_name=False)
    text, plan = told(json.dumps(config), {"KEY": key})
    assert plan is not None or key not in text
