from __future__ import annotations

import pytest

from forebay.config import laws


def test_the_built_in_laws_are_found_like_any_other() -> None:
    assert {"fixed", "gradient_aimd"} <= set(laws.names())
    assert laws.settings_class("fixed") is laws.FixedSettings


def test_an_unknown_law_is_no_law() -> None:
    with pytest.raises(KeyError):
        laws.settings_class("none")
