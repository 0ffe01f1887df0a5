"""The page for people says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from forebay.config import plan_from
from forebay.config.editor import json_schema

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([^|]+)` \| ([^|]*) \|", PAGE, re.MULTILINE))
SCHEMA = json_schema()
DEFS = SCHEMA["$defs"]


def defaults(properties: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, setting in properties.items():
        if "$ref" in setting:
            inner = DEFS[setting["$ref"].rpartition("/")[2]]["properties"]
            found |= defaults(inner, f"{prefix}{name}.")
            continue
        found[f"{prefix}{name}"] = setting.get("default")
        for option in setting.get("anyOf", ()):  # a section that may be left out
            if "$ref" in option:
                inner = DEFS[option["$ref"].rpartition("/")[2]]["properties"]
                found |= defaults(inner, f"{prefix}{name}.")
    return found


def settings() -> list[tuple[str, Any]]:
    upper = {key: value for key, value in SCHEMA["properties"].items() if key.isupper()}
    return [*defaults(upper).items(), *defaults(DEFS["ForebaySettings"]["properties"]).items()]


@pytest.mark.parametrize(("key", "default"), settings())
def test_every_setting_is_on_the_page_with_its_default(key: str, default: Any) -> None:
    if isinstance(default, dict):
        default = default.get("law", "{}")
    written = ROWS[key].strip(" `")
    if isinstance(default, list) and default:
        assert written == ",".join(default)
    elif isinstance(default, int | float) and not isinstance(default, bool):
        assert float(written) == default
    else:
        assert written == str(default).lower()


@pytest.mark.parametrize("key", DEFS["ModelEntry"]["properties"])
def test_every_key_of_a_model_is_on_the_page(key: str) -> None:
    assert key in ROWS


def test_the_page_has_no_setting_that_does_not_exist() -> None:
    known = {key for key, _ in settings()} | set(DEFS["ModelEntry"]["properties"])
    known |= {f"api_keys[].{key}" for key in DEFS["ApiKey"]["properties"]}
    known |= {"F`, or `--config F", "--probe", "--strict", "--json", "--schema"}
    assert {row for row in ROWS if not row.startswith("$")} <= known


def test_the_example_of_the_page_loads() -> None:
    (example,) = re.findall(r"```jsonc\n(.*?)```", PAGE, re.DOTALL)
    plan = plan_from(example, file="example", environ={})
    assert plan.groups["gb10"].budget == 6
    assert plan.groups["gb10"].reserved == 2
    assert not plan.warnings
