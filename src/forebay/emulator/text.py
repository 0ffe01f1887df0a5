"""Token counts, texts and vectors that depend on nothing but their input and a seed."""

from __future__ import annotations

import math
import struct
from hashlib import blake2b, shake_256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CHARACTERS_PER_TOKEN = 4
# Each is one token by the rule above, so that the texts count what was generated.
_TOKENS = tuple(
    f" {word}" for word in ("dam", "wet", "low", "run", "arc", "sea", "dew", "rim", "ice", "oar",
    "bay", "fen", "kit", "log", "net", "pod")
)  # fmt: skip


def count_tokens(text: str) -> int:
    """Return the tokens of a text: one for every four characters, at least one."""
    return max(1, len(text) // CHARACTERS_PER_TOKEN)


def output_tokens(prompt: str, *, typical: int, seed: int) -> int:
    """Return after how many tokens the answer to `prompt` ends by itself."""
    return typical // 2 + int.from_bytes(_digest(prompt, seed, 8)) % (typical + 1)


def tokens_of_answer(prompt: str, *, seed: int) -> Iterator[str]:
    """Yield the answer to `prompt`, token by token, without end."""
    pattern = _digest(prompt, seed, 64)
    while True:
        for byte in pattern:
            yield _TOKENS[byte % len(_TOKENS)]


def unit_vector(text: str, *, dimensions: int, seed: int) -> bytes:
    """Return the text's vector of length one, as little-endian float32."""
    raw = shake_256(f"{seed}:{text}".encode()).digest(4 * dimensions)
    values = struct.unpack(f"<{dimensions}i", raw)
    norm = math.hypot(*values)
    return struct.pack(f"<{dimensions}f", *(value / norm for value in values))


def floats(vector: bytes) -> tuple[float, ...]:
    """Return the numbers of a vector."""
    return struct.unpack(f"<{len(vector) // 4}f", vector)


def score(query: str, text: str, *, seed: int) -> float:
    """Return how well `text` answers `query`: a number from 0 to 1, without any meaning."""
    return int.from_bytes(_digest(f"{query}\0{text}", seed, 8)) / 2**64


def _digest(text: str, seed: int, size: int) -> bytes:
    return blake2b(f"{seed}:{text}".encode(), digest_size=size).digest()
