from __future__ import annotations

import pytest

from forebay.adapters.engines import registry
from forebay.errors import ConfigError

BUILT_IN = (
    *("infinity", "llamacpp", "lmdeploy", "ollama", "sglang", "tei", "tgi"),
    *("triton", "trtllm", "unknown", "vllm"),
)


def test_every_built_in_engine_is_registered_under_its_own_name() -> None:
    assert set(BUILT_IN) <= set(registry.names())
    assert all(registry.engine(name).name == name for name in BUILT_IN)
    assert {engine.name for engine in registry.engines()} >= set(BUILT_IN)


def test_a_name_that_nobody_registered_is_a_configuration_error_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'vllm'"):
        registry.engine("vlm")
