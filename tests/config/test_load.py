from __future__ import annotations

from pathlib import Path

import pytest

from forebay.config import load
from forebay.config.load import find_config
from forebay.errors import ConfigError

CONFIG = '{"chat_models": [{"id": "a", "base_url": "http://h"}]}'


def test_the_file_that_is_named_is_taken_first() -> None:
    environ = {"FOREBAY_CONFIG": "/b.json", "XDG_CONFIG_HOME": "/c"}
    assert find_config("/a.json", environ) == Path("/a.json")
    assert find_config(None, environ) == Path("/b.json")
    assert find_config(None, {"XDG_CONFIG_HOME": "/c"}) == Path("/c/forebay/config.json")


def test_without_any_hint_it_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert find_config(None, {}) == Path("/home/me/.config/forebay/config.json")
    assert find_config(None, {"FOREBAY_CONFIG": "~/f.json"}) == Path("/home/me/f.json")


def test_it_is_loaded_from_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "forebay" / "config.json"
    file.parent.mkdir()
    file.write_text(CONFIG, encoding="utf-8")
    plan = load(environ={"XDG_CONFIG_HOME": str(tmp_path)})
    assert plan.file == str(file)
    assert list(plan.models) == ["a"]


def test_the_processs_own_environment_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "f.json"
    file.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("FOREBAY_CONFIG", str(file))
    monkeypatch.setenv("MODEL_MAX_CONCURRENCY", "5")
    assert load().config.max_concurrency == 5


def test_no_defaults_stand_in_for_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: cannot be read \(No such file"):
        load(tmp_path / "none.json", environ={})


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, environ={})
