"""What the chat engine says to a request, in the bodies of OpenAI's two APIs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.emulator.text import tokens_of_answer

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The answer to one request; nothing of it depends on when its tokens are generated.

    Args:
        chat: whether it goes out as a chat completion, else as a text completion.
        number: makes its id unique.
        created: seconds since the epoch.
        model: the model's id.
        prompt: what it answers.
        prompt_tokens: length of that.
        output_tokens: its own length.
        finish_reason: why it ends there.
        seed: the model's.
    """

    chat: bool
    number: int
    created: int
    model: str
    prompt: str
    prompt_tokens: int
    output_tokens: int
    finish_reason: str
    seed: int

    def tokens(self) -> Iterator[str]:
        """Yield the tokens."""
        return islice(tokens_of_answer(self.prompt, seed=self.seed), self.output_tokens)

    def whole(self) -> dict[str, Any]:
        """Return the body of a response that is not streamed."""
        text = "".join(self.tokens())
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": self.finish_reason}
        name = "chat.completion" if self.chat else "text_completion"
        return self._body(name, choice) | {"usage": self._usage()}

    def opening_event(self) -> bytes:
        """Return the event before a streamed chat's first token."""
        return self._event({"delta": {"role": "assistant", "content": ""}}, None)

    def token_event(self, token: str, *, last: bool) -> bytes:
        """Return the event of one token."""
        said = {"delta": {"content": token}} if self.chat else {"text": token}
        return self._event(said, self.finish_reason if last else None)

    def usage_event(self) -> bytes:
        """Return the event that ends a stream with ``include_usage``."""
        return msgspec.json.encode(self._body(self._chunk_name) | {"usage": self._usage()})

    @property
    def _chunk_name(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _event(self, said: dict[str, Any], finish_reason: str | None) -> bytes:
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish_reason}
        return msgspec.json.encode(self._body(self._chunk_name, choice))

    def _body(self, name: str, *choices: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.number:012x}",
            "object": name,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def _usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.output_tokens,
            "completion_tokens": self.output_tokens,
        }
