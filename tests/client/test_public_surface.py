"""`import forebay` is cheap, and has what it says."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import forebay

THIRD_PARTY = {"aiohttp", "pydantic", "starlette", "uvicorn", "numpy", "typer"}


def loaded_by(code: str) -> set[str]:
    """The modules that are loaded in a fresh process after `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        capture_output=True,
        check=True,
        text=True,
    )
    return set(done.stdout.split())


def test_importing_it_loads_nothing_else() -> None:
    assert not loaded_by("import forebay") & {*THIRD_PARTY, "asyncio"}


def test_the_library_does_not_load_the_gateway() -> None:
    loaded = loaded_by("import forebay; forebay.open")
    assert not {name for name in loaded if name.startswith("forebay.gateway")}
    assert not loaded & {"starlette", "uvicorn", "numpy", "typer"}


def test_every_public_name_is_there() -> None:
    assert set(forebay.__all__) <= set(dir(forebay))
    for name in forebay.__all__:
        assert getattr(forebay, name) is not None
    assert forebay.__version__ == version("forebay")


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="opne"):
        _ = forebay.opne


def test_a_usage_error_is_a_runtime_error_and_one_of_ours() -> None:
    assert issubclass(forebay.UsageError, RuntimeError)
    assert issubclass(forebay.UsageError, forebay.ForebayError)
