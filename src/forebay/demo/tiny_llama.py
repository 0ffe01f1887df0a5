"""A small Llama with random weights, written as a GGUF file: real work, meaningless words.

Every layer costs what a layer of that size costs, which is all that a demonstration of contention
needs, and nothing has to be downloaded.

Source of the keys and tensor names: the GGUF specification and gguf-py's `MODEL_TENSORS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType

from forebay.demo.words import WORDS

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_SPACE = "\u2581"  # SentencePiece's mark for the space before a word
_SPECIAL = ("<unk>", "<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>")
_UNK_ID, _BOS_ID, _EOS_ID = 0, 1, 2
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True, slots=True)
class TinyLlama:
    """The shape of the model.

    The default computes about 600 tokens/s for one user on one core, and less than twice that for
    eight: a machine that saturates as a busy GPU does.
    """

    hidden: int = 512
    layers: int = 8
    heads: int = 8
    kv_heads: int = 4
    feed_forward: int = 1408
    context: int = 4096
    seed: int = 0


def write_tiny_llama(path: Path, shape: TinyLlama) -> None:
    """Write the model to `path`, with 8-bit weights and a byte-complete tokenizer."""
    writer = GGUFWriter(path, "llama")
    tokens = _add_tokenizer(writer)
    _add_shape(writer, shape, vocabulary=len(tokens))
    _add_weights(writer, shape, tokens)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: GGUFWriter) -> list[str]:
    vocabulary = _vocabulary()
    tokens = list(vocabulary)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_types(list(vocabulary.values()))
    writer.add_token_scores([-float(rank) for rank in range(len(tokens))])
    writer.add_unk_token_id(_UNK_ID)
    writer.add_bos_token_id(_BOS_ID)
    writer.add_eos_token_id(_EOS_ID)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_chat_template(_CHAT_TEMPLATE)
    return tokens


def _vocabulary() -> dict[str, TokenType]:
    """Tokens in order of their ids, each with its type."""
    vocabulary = {_SPECIAL[0]: TokenType.UNKNOWN}
    vocabulary |= dict.fromkeys(_SPECIAL[1:], TokenType.CONTROL)
    vocabulary |= {f"<0x{byte:02X}>": TokenType.BYTE for byte in range(256)}
    vocabulary |= {chr(code): TokenType.NORMAL for code in range(ord("!"), ord("~") + 1)}
    vocabulary[_SPACE] = TokenType.NORMAL
    for word in WORDS:
        # The tokenizer merges pair by pair, so each beginning of a word must be a token too.
        for end in range(1, len(word) + 1):
            vocabulary.setdefault(_SPACE + word[:end], TokenType.NORMAL)
    return vocabulary


def _add_shape(writer: GGUFWriter, shape: TinyLlama, *, vocabulary: int) -> None:
    writer.add_name("tiny-random")
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    writer.add_vocab_size(vocabulary)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.hidden // shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)


def _add_weights(writer: GGUFWriter, shape: TinyLlama, tokens: list[str]) -> None:
    rng = np.random.default_rng(shape.seed)

    def random(rows: int, columns: int) -> NDArray[np.float32]:
        return rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)

    def add_matrix(name: str, matrix: NDArray[np.float32]) -> None:
        quantized = gguf.quants.quantize(matrix, GGMLQuantizationType.Q8_0)
        writer.add_tensor(name, quantized, raw_dtype=GGMLQuantizationType.Q8_0)

    def add_norm(name: str) -> None:
        writer.add_tensor(name, np.ones(shape.hidden, np.float32))

    # Whole words alone can be said: other tokens score zero, far below the likely words. So an
    # answer reads as words and never ends before the length that was asked for.
    says_word = np.isin(tokens, [_SPACE + word for word in WORDS])
    head = random(len(tokens), shape.hidden) * np.float32(5) * says_word[:, np.newaxis]

    add_matrix("token_embd.weight", random(len(tokens), shape.hidden))
    add_norm("output_norm.weight")
    add_matrix("output.weight", head.astype(np.float32))
    kv_width = shape.hidden // shape.heads * shape.kv_heads
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        add_norm(f"{block}.attn_norm.weight")
        add_matrix(f"{block}.attn_q.weight", random(shape.hidden, shape.hidden))
        add_matrix(f"{block}.attn_k.weight", random(kv_width, shape.hidden))
        add_matrix(f"{block}.attn_v.weight", random(kv_width, shape.hidden))
        add_matrix(f"{block}.attn_output.weight", random(shape.hidden, shape.hidden))
        add_norm(f"{block}.ffn_norm.weight")
        add_matrix(f"{block}.ffn_gate.weight", random(shape.feed_forward, shape.hidden))
        add_matrix(f"{block}.ffn_up.weight", random(shape.feed_forward, shape.hidden))
        add_matrix(f"{block}.ffn_down.weight", random(shape.hidden, shape.feed_forward))
