"""The chat engine's HTTP API, in the manner of vLLM's OpenAI-compatible server."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any

from forebay.emulator.chat_answer import ChatAnswer
from forebay.emulator.chat_engine import ChatSequence
from forebay.emulator.chat_requests import ChatRequest, CompletionRequest
from forebay.emulator.exchange import Refusal
from forebay.emulator.metrics import chat_metrics
from forebay.emulator.text import count_tokens, output_tokens

if TYPE_CHECKING:
    from aiohttp import web

    from forebay.emulator.chat_requests import Generation
    from forebay.emulator.exchange import Exchange
    from forebay.emulator.runner import GpuRunner
    from forebay.emulator.spec import EmulatorSpec


_MALFORMED = (400, "BadRequestError")


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
        self._numbers = count(1)

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
        answer = self._answer(request, "\n".join(texts), sum(map(count_tokens, texts)), limit)
        return await self._send(exchange, request, answer)

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
        return await self._send(exchange, request, self._answer(request, text, tokens, limit))

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

    def _answer(
        self, request: Generation, prompt: str, prompt_tokens: int, limit: int | None
    ) -> ChatAnswer:
        """Return what is said to a request of at most `limit` tokens.

        Raises:
            Refusal: as vLLM refuses: an unknown model, too many choices, too many tokens.
        """
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
        ends_by_itself = natural <= limit and not request.ignore_eos
        return ChatAnswer(
            chat=isinstance(request, ChatRequest),
            number=next(self._numbers),
            created=_unix_time(),
            model=spec.model,
            prompt=prompt,
            prompt_tokens=prompt_tokens,
            output_tokens=natural if ends_by_itself else limit,
            finish_reason="stop" if ends_by_itself else "length",
            seed=self._seed,
        )

    async def _send(
        self, exchange: Exchange, request: Generation, answer: ChatAnswer
    ) -> web.StreamResponse:
        sequence = ChatSequence(answer.prompt_tokens, answer.output_tokens)
        if not request.stream:
            with self._runner.running(sequence) as progress:
                await progress.reach(answer.output_tokens)
            return await exchange.send_json(answer.whole())
        await exchange.start_stream()
        with self._runner.running(sequence) as progress:
            for number, token in enumerate(answer.tokens(), start=1):
                await progress.reach(number)
                if answer.chat and number == 1:
                    await exchange.send_event(answer.opening_event())
                last = number == answer.output_tokens
                await exchange.send_event(answer.token_event(token, last=last))
        if request.stream_options is not None and request.stream_options.include_usage:
            await exchange.send_event(answer.usage_event())
        return await exchange.end_stream()


def _unix_time() -> int:
    return int(datetime.now(UTC).timestamp())
