"""What an emulated host is: every number of the model, and how it is served.

Times are seconds, sizes are tokens. The defaults describe a mid-size chat model and a small
embedding model on one GPU (see `forebay.emulator.gpu` for what the numbers do):

- chat alone: first token after about 60 ms, then about 12 ms a token;
- 32 embedding requests of 16 short texts in flight: chat's first token takes about 4 times as long;
- 4 of them in flight: less than 1.4 times, at about 80 % of the embeddings per second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from forebay.emulator.faults import Fault
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ChatSpec(_Spec):
    """A chat engine with continuous batching.

    Args:
        model: the served model's id.
        weights_s: reading the weights once: what a step takes at least.
        context_token_s: reading one cached token's keys and values.
        token_s: computing one token of a step's batch.
        overhead_s: what every step costs on top.
        prefill_overhead_s: what a step that prefills costs on top: it cannot replay the captured
            graph of a pure decode step.
        max_sequences: sequences that run at once; the others wait in the engine's queue.
        max_step_tokens: tokens computed in one step; longer prompts are prefilled in chunks.
        kv_blocks: size of the KV cache.
        block_tokens: tokens in one KV-cache block.
        max_model_tokens: longest prompt plus output of one sequence.
        typical_output_tokens: a text ends by itself after half to one and a half times this.
    """

    model: str = "chat"
    weights_s: float = Field(default=0.010, ge=0)
    context_token_s: float = Field(default=1e-7, ge=0)
    token_s: float = Field(default=1e-4, ge=0)
    overhead_s: float = Field(default=0.002, gt=0)
    prefill_overhead_s: float = Field(default=0.046, ge=0)
    max_sequences: int = Field(default=64, ge=1)
    max_step_tokens: int = Field(default=2048, ge=1)
    kv_blocks: int = Field(default=4096, ge=1)
    block_tokens: int = Field(default=16, ge=1)
    max_model_tokens: int = Field(default=8192, ge=2)
    typical_output_tokens: int = Field(default=256, ge=2)

    @model_validator(mode="after")
    def _one_sequence_fits(self) -> Self:
        cache = self.kv_blocks * self.block_tokens
        if cache < self.max_model_tokens:
            raise ValueError(
                f"max_model_tokens is {self.max_model_tokens}, but the KV cache holds {cache} "
                f"tokens: raise kv_blocks or lower max_model_tokens"
            )
        return self


class EmbeddingSpec(_Spec):
    """An embedding engine with dynamic batching.

    Args:
        model: the served model's id.
        dimensions: length of a vector.
        weights_s: reading the weights once: what a step takes at least.
        token_s: computing one token of a step's batch.
        overhead_s: what every step costs on top.
        pad_tokens: each text is padded up to a multiple of this, as bucketed engines do.
        max_batch_tokens: padded tokens of one step's batch.
        max_input_tokens: longer texts are truncated.
        max_client_batch: texts in one request; more are refused with 422.
        max_request_tokens: tokens of all texts in one request; more are refused with 400.
            None: any number.
        max_concurrent_inputs: texts in the engine; more are refused with 429.
        max_body_bytes: longer requests are refused with 413.
    """

    model: str = "embedding"
    dimensions: int = Field(default=64, ge=1, le=8192)
    weights_s: float = Field(default=0.010, ge=0)
    token_s: float = Field(default=2e-5, ge=0)
    overhead_s: float = Field(default=0.030, gt=0)
    pad_tokens: int = Field(default=128, ge=1)
    max_batch_tokens: int = Field(default=16384, ge=1)
    max_input_tokens: int = Field(default=8192, ge=1)
    max_client_batch: int = Field(default=32, ge=1)
    max_request_tokens: int | None = Field(default=None, ge=1)
    max_concurrent_inputs: int = Field(default=4096, ge=1)
    max_body_bytes: int = Field(default=2_000_000, ge=1)

    @model_validator(mode="after")
    def _one_text_fits(self) -> Self:
        longest = self.padded(self.max_input_tokens)
        if longest > self.max_batch_tokens:
            raise ValueError(
                f"a text of max_input_tokens {self.max_input_tokens} is padded to {longest} tokens,"
                f" more than max_batch_tokens {self.max_batch_tokens}"
            )
        return self

    def padded(self, tokens: int) -> int:
        """Return what a text of that many tokens takes in a batch."""
        tokens = min(tokens, self.max_input_tokens)
        return -(-tokens // self.pad_tokens) * self.pad_tokens


class GpuSpec(_Spec):
    """One GPU and the two engines on it.

    Args:
        chat: the chat engine.
        embedding: the embedding engine.
        chat_share: share of the GPU that chat keeps beside a full embedding batch.
    """

    chat: ChatSpec = ChatSpec()
    embedding: EmbeddingSpec = EmbeddingSpec()
    chat_share: float = Field(default=0.25, gt=0, lt=1)


class EmulatorSpec(GpuSpec):
    """An emulated host: the GPU, and how it is served.

    Args:
        seed: texts, vectors and the dice of faults depend on nothing else.
        keepalive_s: idle connections are closed after this (vLLM's own default).
        timeline_length: changes of the in-flight counts that the record remembers.
        faults: faults that are active from the start.
    """

    seed: int = 0
    keepalive_s: float = Field(default=5.0, gt=0)
    timeline_length: int = Field(default=10_000, ge=0)
    faults: tuple[Fault, ...] = ()


def load_spec(path: Path) -> EmulatorSpec:
    """Read a spec from a JSON file.

    Raises:
        ConfigError: the file cannot be read, or is not a spec; the message names file and keys.
    """
    try:
        return EmulatorSpec.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'spec'}: {problem['msg']}"
            for problem in error.errors()
        )
        raise ConfigError(f"{path}: {problems}") from error
