from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from forebay.config.editor import json_schema
from forebay.config.jsonc import parse

EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.json"))
VALIDATOR = jsonschema.Draft202012Validator(json_schema())
MODEL = {"id": "a", "base_url": "http://h"}


def test_it_is_a_schema() -> None:
    VALIDATOR.check_schema(VALIDATOR.schema)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_fit_it(file: Path) -> None:
    VALIDATOR.validate(parse(file.read_bytes(), file=file.name).value)


@pytest.mark.parametrize(
    "config",
    [
        {"chat_models": [{**MODEL, "max_concurrent_requests": "${MAX}"}]},
        {"chat_models": [{**MODEL, "engine": "${ENGINE:-vllm}"}]},
        {"GPU_CONCURRENCY_BUDGETS": {"gb10": "6"}, "GPU_RESERVED_ROLES": "chat,lite"},
        {"GPU_RESERVED_ROLES": ["chat"], "MODEL_CIRCUIT_BREAKER": "off"},
        {"forebay": {"limit": "fixed", "sse_keepalive_s": 0}, "$schema": "./s.json"},
        {"forebay": {"limit": {"law": "gradient_aimd", "backoff": 0.7}}},
    ],
)
def test_what_loads_fits_it(config: dict[str, object]) -> None:
    VALIDATOR.validate(config)


@pytest.mark.parametrize(
    "config",
    [
        {"GPU_CONCURRENCY_BUDGET": {}},
        {"GPU_CONCURRENCY_BUDGETS": {"gb10": 0}},
        {"GPU_CONCURRENCY_BUDGETS": {"gb10": "six"}},
        {"MODEL_LATENCY_GRADIENT_TARGET": 1},
        {"chat_models": [{"base_url": "http://h"}]},
        {"embedding_models": [{**MODEL, "fallback": {}}]},
        {"forebay": {"limit": "none"}},
        {"forebay": {"limit": {"law": "fixed", "backoff": 0.7}}},
        {"forebay": {"limit": {"law": "gradient_aimd", "backoff": 2}}},
    ],
)
def test_what_is_refused_does_not(config: dict[str, object]) -> None:
    assert not VALIDATOR.is_valid(config)


def test_every_setting_is_described() -> None:
    schema = json_schema()
    objects = [schema, *schema["$defs"].values()]
    undescribed = [
        f"{one['title']}.{name}"
        for one in objects
        for name, setting in one["properties"].items()
        if "description" not in setting and "$ref" not in setting
    ]
    assert undescribed == ["FallbackEntry.base_url"]
