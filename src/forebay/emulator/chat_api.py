"""The chat engine's HTTP API, in the manner of vLLM's OpenAI-compatible server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.emulator.chat_engine import ChatSequence
from forebay.emulator.chat_requests import ChatRequest, CompletionRequest
from forebay.emulator.exchange import Refusal
from forebay.emulator.metrics import chat_metrics
from forebay.emulator.text import count_tokens, output_tokens, tokens_of_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from forebay.emulator.chat_requests import Generation
    from forebay.emulator.exchange import Exchange
    from forebay.emulator.runner import GpuRunner
    from forebay.emulator.spec import EmulatorSpec


_MALFORMED = (400, "BadRequestError")


@dataclass(frozen=True, slots=True)
class _Style:
    """Where the two APIs' bodies differ."""

    id_prefix: str
    name: str
    chunk_name: str
    chat: bool

    def whole(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}

    def piece(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text}} if self.chat else {"text": text}


_CHAT = _Style("chatcmpl", "chat.completion", "chat.completion.chunk", chat=True)
_COMPLETION = _Style("cmpl", "text_completion", "text_completion", chat=False)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is generated for a request; nothing of it depends on time."""

    prompt: str
    prompt_tokens: int
    output_tokens: int
    finish_reason: str

    @property
    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.output_tokens,
            "completion_tokens": self.output_tokens,
        }


class ChatApi:
    """Handlers of the chat engine's requests.

    Args:
        spec: the emulated host.
        runner: the GPU.
    """

    def __init__(self, spec: EmulatorSpec, runner: GpuRunner) -> None:
        self._spec = spec.chat
        self._seed = spec.seed
        self._runner = runner
        self._ids = count(1)

    @staticmethod
    def error_body(status: int, kind: str, message: str) -> dict[str, Any]:
        """Return vLLM's body of an error."""
        return {"error": {"message": message, "type": kind, "param": None, "code": status}}

    async def chat_completions(self, exchange: Exchange) -> web.StreamResponse:
        """Handle ``POST /v1/chat/completions``."""
        request = exchange.decode(ChatRequest, refusal=_MALFORMED)
        if not request.messages:
            raise Refusal(*_MALFORMED, "messages must not be empty")
        texts = [message.text for message in request.messages]
        limit = request.max_completion_tokens
        if limit is None:
            limit = request.max_tokens
        plan = self._plan(request, "\n".join(texts), sum(map(count_tokens, texts)), limit)
        return await self._generate(exchange, request, plan, _CHAT)

    async def completions(self, exchange: Exchange) -> web.StreamResponse:
        """Handle ``POST /v1/completions``, of one prompt: a text, or token ids."""
        request = exchange.decode(CompletionRequest, refusal=_MALFORMED)
        match request.prompt:
            case str(text) | [str(text)]:
                tokens = count_tokens(text)
            case [int(), *_] as ids:
                text, tokens = repr(ids), len(ids)
            case _:
                raise Refusal(*_MALFORMED, "prompt must be one text or its token ids")
        limit = 16 if request.max_tokens is None else request.max_tokens  # OpenAI's default
        plan = self._plan(request, text, tokens, limit)
        return await self._generate(exchange, request, plan, _COMPLETION)

    async def models(self, exchange: Exchange) -> web.StreamResponse:
        """Handle ``GET /v1/models``."""
        model = {
            "id": self._spec.model,
            "object": "model",
            "created": _unix_time(),
            "owned_by": "vllm",
            "root": self._spec.model,
            "parent": None,
            "max_model_len": self._spec.max_model_tokens,
        }
        return await exchange.send_json({"object": "list", "data": [model]})

    async def health(self, exchange: Exchange) -> web.StreamResponse:
        """Handle ``GET /health``."""
        return await exchange.send_text("")

    async def metrics(self, exchange: Exchange) -> web.StreamResponse:
        """Handle ``GET /metrics``."""
        self._runner.catch_up()
        return await exchange.send_text(chat_metrics(self._runner.gpu.chat))

    def _plan(
        self, request: Generation, prompt: str, prompt_tokens: int, limit: int | None
    ) -> _Plan:
        spec = self._spec
        if request.model != spec.model:
            message = f"The model `{request.model}` does not exist."
            raise Refusal(404, "NotFoundError", message)
        if request.n not in {None, 1}:
            raise Refusal(*_MALFORMED, f"n must be 1, not {request.n}")
        room = spec.max_model_tokens - prompt_tokens
        if limit is None:
            limit = room
        if not 1 <= limit <= room:
            raise Refusal(
                *_MALFORMED,
                f"max_tokens is {limit} after a prompt of {prompt_tokens} tokens: it must be at "
                f"least 1, and this model's maximum context length is {spec.max_model_tokens}",
            )
        natural = output_tokens(prompt, typical=spec.typical_output_tokens, seed=self._seed)
        if request.ignore_eos or natural > limit:
            return _Plan(prompt, prompt_tokens, limit, "length")
        return _Plan(prompt, prompt_tokens, natural, "stop")

    async def _generate(
        self, exchange: Exchange, request: Generation, plan: _Plan, style: _Style
    ) -> web.StreamResponse:
        head = {
            "id": f"{style.id_prefix}-{next(self._ids):012x}",
            "object": style.chunk_name if request.stream else style.name,
            "created": _unix_time(),
            "model": request.model,
        }
        if not request.stream:
            return await self._send_whole(exchange, plan, style, head)
        usage = request.stream_options is not None and request.stream_options.include_usage
        return await self._send_stream(exchange, plan, style, head, usage=bool(usage))

    async def _send_whole(
        self, exchange: Exchange, plan: _Plan, style: _Style, head: dict[str, Any]
    ) -> web.StreamResponse:
        with self._runner.running(ChatSequence(plan.prompt_tokens, plan.output_tokens)) as progress:
            await progress.reach(plan.output_tokens)
        text = "".join(islice(self._tokens(plan), plan.output_tokens))
        choice = {"index": 0, **style.whole(text), "finish_reason": plan.finish_reason}
        return await exchange.send_json({**head, "choices": [choice], "usage": plan.usage})

    async def _send_stream(
        self,
        exchange: Exchange,
        plan: _Plan,
        style: _Style,
        head: dict[str, Any],
        *,
        usage: bool,
    ) -> web.StreamResponse:
        def event(piece: dict[str, Any], finish_reason: str | None = None) -> bytes:
            choice = {"index": 0, **piece, "logprobs": None, "finish_reason": finish_reason}
            return msgspec.json.encode({**head, "choices": [choice]})

        await exchange.start_stream()
        tokens = self._tokens(plan)
        sent = 0
        with self._runner.running(ChatSequence(plan.prompt_tokens, plan.output_tokens)) as progress:
            while sent < plan.output_tokens:
                generated = await progress.reach(sent + 1)
                if style.chat and sent == 0:
                    await exchange.send_event(
                        event({"delta": {"role": "assistant", "content": ""}})
                    )
                for token in islice(tokens, generated - sent):
                    sent += 1
                    last = sent == plan.output_tokens
                    reason = plan.finish_reason if last else None
                    await exchange.send_event(event(style.piece(token), reason))
        if usage:
            await exchange.send_event(
                msgspec.json.encode({**head, "choices": [], "usage": plan.usage})
            )
        return await exchange.end_stream()

    def _tokens(self, plan: _Plan) -> Iterator[str]:
        return tokens_of_answer(plan.prompt, seed=self._seed)


def _unix_time() -> int:
    return int(datetime.now(UTC).timestamp())
