"""`import forebay` is cheap, and has what it says."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import requires, version

import anyio
import pytest
from packaging.requirements import Requirement

import forebay
from support.configs import emulated

pytestmark = pytest.mark.anyio

GATEWAY = {"prometheus_client", "rich", "starlette", "typer", "uvloop"}
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
    assert not loaded & {*GATEWAY, "numpy", "httpx", "httpx2"}


def test_an_install_of_the_library_alone_has_none_of_the_gateway_s_dependencies() -> None:
    needs = {Requirement(need) for need in requires("forebay")}
    assert not {need.name for need in needs if need.marker is None} & GATEWAY
    extra = {
        need.name for need in needs if need.marker and need.marker.evaluate({"extra": "gateway"})
    }
    assert {name.replace("-", "_") for name in extra} == GATEWAY


async def test_the_library_works_where_they_are_not_installed(host, write) -> None:
    script = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(GATEWAY)!r}))  # as if they were not there
import forebay
with forebay.open_sync(sys.argv[1]) as fb:
    print(fb.embed_sync(["a", "b"], model="embedding").shape)
    print(fb.http_client_sync().get("/models").status_code)
"""
    command = [sys.executable, "-c", script, str(write(emulated(host)))]
    done = await anyio.run_process(command, stderr=None)
    assert done.stdout == b"(2, 8)\n200\n"


async def test_the_command_line_tells_what_it_lacks() -> None:
    script = "import sys; sys.modules['typer'] = None; from forebay.cli import main; main()"
    done = await anyio.run_process([sys.executable, "-c", script], check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == (
        "error: the command line needs typer, which is not installed: "
        "pip install 'forebay[gateway]'\n"
    )


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
