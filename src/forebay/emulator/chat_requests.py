"""Bodies of requests to the chat engine; fields that change nothing here are ignored."""

from __future__ import annotations

import msgspec


class StreamOptions(msgspec.Struct):
    """OpenAI's ``stream_options``."""

    include_usage: bool | None = None


class Generation(msgspec.Struct, kw_only=True):
    """What both kinds of requests have in common; `ignore_eos` is vLLM's own."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    ignore_eos: bool | None = None
    n: int | None = None


class Part(msgspec.Struct):
    """One part of a message; only text counts."""

    text: str = ""


class Message(msgspec.Struct):
    """One message of a chat."""

    role: str
    content: str | list[Part] | None = None

    @property
    def text(self) -> str:
        """What is said."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ChatRequest(Generation, kw_only=True):
    """Body of ``POST /v1/chat/completions``."""

    messages: list[Message]
    max_completion_tokens: int | None = None


class CompletionRequest(Generation, kw_only=True):
    """Body of ``POST /v1/completions``; the prompt is a text, a list of texts, or token ids."""

    prompt: str | list[str | int]
