"""The example of the documentation is this one, and prints what the page says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from forebay import sim

EXAMPLE = Path(__file__).parent / "examples" / "storm.py"
PAGE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text("utf-8")


def test_the_page_shows_the_example_and_what_it_prints(capsys) -> None:
    runpy.run_path(str(EXAMPLE))
    printed = capsys.readouterr().out
    assert f"```python\n{EXAMPLE.read_text('utf-8')}```\n\n```\n{printed}```" in PAGE


def test_every_name_on_the_page_exists() -> None:
    changes = PAGE[PAGE.index("| change |") : PAGE.index("## The record")]
    for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", changes, re.MULTILINE):
        for name in re.findall(r"\w+", row):
            assert hasattr(sim.changes, name)
    for name in re.findall(r"`([A-Z]\w+[a-z])\b", PAGE):
        assert hasattr(sim, name) or name in {"None", "Retry"}
