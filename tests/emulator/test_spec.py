from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from forebay.emulator import ChatSpec, EmbeddingSpec, EmulatorSpec, load_spec
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_spec_file_sets_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    file.write_text('{"seed": 7, "chat": {"model": "big", "max_sequences": 4}}')
    spec = load_spec(file)
    assert (spec.seed, spec.chat.model, spec.chat.max_sequences) == (7, "big", 4)
    assert spec.embedding == EmulatorSpec().embedding


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"chat": {"max_sequenses": 4}}', "chat.max_sequenses"),
        ('{"chat_share": 1.5}', "chat_share"),
        ('{"faults": [{"kind": "hang"}]}', "engine"),
        ("{", "spec: Invalid JSON"),
    ],
)
def test_a_wrong_spec_file_is_refused_with_file_and_key(
    tmp_path: Path, text: str, named: str
) -> None:
    file = tmp_path / "host.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"host.json: .*{named}"):
        load_spec(file)


def test_a_missing_spec_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: cannot be read"):
        load_spec(tmp_path / "none.json")


def test_a_cache_that_is_too_small_for_one_sequence_is_refused() -> None:
    with pytest.raises(ValidationError, match="KV cache holds 160 tokens"):
        ChatSpec(kv_blocks=10, block_tokens=16, max_model_tokens=161)


def test_a_text_that_is_too_long_for_a_batch_is_refused() -> None:
    with pytest.raises(ValidationError, match="padded to 1024 tokens"):
        EmbeddingSpec(max_input_tokens=1000, pad_tokens=128, max_batch_tokens=1000)
