"""What the documentation says is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forebay.cli._app import app
from forebay.config import plan_from

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


def blocks(language: str) -> list:
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for n, block in enumerate(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)):
            found.append(pytest.param(block, id=f"{page.name}-{n}"))
    return found


def configurations() -> list:
    """The whole ones; a fragment names no models."""
    return [
        b for b in blocks("jsonc") if re.search(r'"(chat|embedding|rerank)_models"', b.values[0])
    ]


@pytest.mark.parametrize("block", configurations())
def test_every_configuration_in_the_docs_loads(block) -> None:
    plan_from(block.encode(), file="docs", environ={})


@pytest.mark.parametrize("block", blocks("python"))
def test_every_python_example_is_valid_python(block) -> None:
    compile(block, "docs", "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_command_in_the_docs_exists() -> None:
    known = {command.name for command in app.registered_commands}
    for page in PAGES:
        for command in re.findall(
            r"(?:`|^)forebay ([a-z]+)", page.read_text("utf-8"), re.MULTILINE
        ):
            assert command in known, f"{page.name} tells of `forebay {command}`"


def test_every_metric_in_the_docs_exists_and_every_metric_is_in_the_docs() -> None:
    text = (ROOT / "docs/operating.md").read_text("utf-8")
    told = set(re.findall(r"^\| `(forebay_\w+)`", text, re.MULTILINE))
    modules = (ROOT / "src/forebay/adapters/telemetry").glob("*.py")
    source = "".join(module.read_text("utf-8") for module in modules)
    is_counter = r'(?:Counts\(\s*registry,|CounterMetricFamily\()\s*"(forebay_\w+)"'
    counters = set(re.findall(is_counter, source))
    made = set(re.findall(r'"(forebay_\w+)"', source))
    assert told == (made - counters) | {f"{name}_total" for name in counters}


def test_every_make_target_in_the_docs_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in PAGES:
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text("utf-8"), re.MULTILINE):
            assert target in targets, f"{page.name} tells of `make {target}`"
