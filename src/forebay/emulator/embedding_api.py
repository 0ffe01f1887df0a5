"""The embedding engine's HTTP API, in the manner of text-embeddings-inference (TEI)."""

from __future__ import annotations

import base64
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from forebay.emulator.embedding_engine import EmbeddingJob
from forebay.emulator.exchange import Refusal
from forebay.emulator.metrics import embedding_metrics
from forebay.emulator.text import count_tokens, floats, score, unit_vector

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aiohttp import web

    from forebay.emulator.exchange import Exchange
    from forebay.emulator.runner import GpuRunner
    from forebay.emulator.spec import EmulatorSpec

_Inputs = str | list[str | int | list[int]]  # texts, or token ids as OpenAI allows them
_MALFORMED = (422, "Validation")
_KINDS = {424: "backend", 429: "overloaded", 503: "unhealthy"}


class _OpenAIRequest(msgspec.Struct):
    input: _Inputs
    encoding_format: Literal["float", "base64"] | None = None


class _EmbedRequest(msgspec.Struct):
    inputs: _Inputs


class _RerankRequest(msgspec.Struct):
    query: str
    texts: list[str]


class _Text(NamedTuple):
    content: str  # token ids are written out
    tokens: int


class EmbeddingApi:
    """Handlers of the embedding engine's requests.

    Args:
        spec: the emulated host.
        runner: the GPU.
    """

    def __init__(self, spec: EmulatorSpec, runner: GpuRunner) -> None:
        self._spec = spec.embedding
        self._seed = spec.seed
        self._runner = runner
        self._texts_inflight = 0
        self._answers: Counter[tuple[str, str]] = Counter()

    @staticmethod
    def error_body(status: int, kind: str, message: str) -> dict[str, Any]:
        """Return TEI's body of an error, with the keys of both its APIs."""
        kind = _KINDS.get(status, kind)
        return {
            "message": message,
            "code": status,
            "type": kind,
            "error": message,
            "error_type": kind,
        }

    async def embeddings(self, exchange: Exchange) -> web.StreamResponse:
        """Handle ``POST /v1/embeddings``; the model's name is not looked at."""
        request = exchange.decode(_OpenAIRequest, refusal=_MALFORMED)
        texts = _texts(request.input)
        await self._compute(texts)
        tokens = sum(text.tokens for text in texts)
        base64_wanted = request.encoding_format == "base64"
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(vector).decode() if base64_wanted else floats(vector),
            }
            for index, vector in enumerate(self._vectors(texts))
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return await exchange.send_json(
            {"object": "list", "data": data, "model": self._spec.model, "usage": usage}
        )

    async def embed(self, exchange: Exchange) -> web.StreamResponse:
        """Handle ``POST /embed``."""
        texts = _texts(exchange.decode(_EmbedRequest, refusal=_MALFORMED).inputs)
        await self._compute(texts)
        return await exchange.send_json([floats(vector) for vector in self._vectors(texts)])

    async def rerank(self, exchange: Exchange) -> web.StreamResponse:
        """Handle ``POST /rerank``: each text is computed together with the query."""
        request = exchange.decode(_RerankRequest, refusal=_MALFORMED)
        await self._compute([_text(f"{request.query} {text}") for text in request.texts])
        scores = [score(request.query, text, seed=self._seed) for text in request.texts]
        ranks = sorted(enumerate(scores), key=lambda rank: -rank[1])
        return await exchange.send_json([{"index": i, "score": value} for i, value in ranks])

    async def info(self, exchange: Exchange) -> web.StreamResponse:
        """Handle ``GET /info``."""
        spec = self._spec
        return await exchange.send_json(
            {
                "model_id": spec.model,
                "served_model_name": spec.model,
                "model_type": {"embedding": {"pooling": "mean"}},
                "max_concurrent_requests": spec.max_concurrent_inputs,
                "max_input_length": spec.max_input_tokens,
                "max_batch_tokens": spec.max_batch_tokens,
                "max_batch_requests": None,
                "max_client_batch_size": spec.max_client_batch,
                "auto_truncate": True,
            }
        )

    async def models(self, exchange: Exchange) -> web.StreamResponse:
        """Handle ``GET /v1/models``."""
        model = {"id": self._spec.model, "object": "model", "created": 0, "owned_by": "tei"}
        return await exchange.send_json({"object": "list", "data": [model]})

    async def health(self, exchange: Exchange) -> web.StreamResponse:
        """Handle ``GET /health``."""
        return await exchange.send_text("")

    async def metrics(self, exchange: Exchange) -> web.StreamResponse:
        """Handle ``GET /metrics``."""
        self._runner.catch_up()
        return await exchange.send_text(
            embedding_metrics(self._runner.gpu.embedding, self._answers)
        )

    async def _compute(self, texts: Sequence[_Text]) -> None:
        """Have the texts computed.

        Raises:
            Refusal: as TEI refuses: none, too many at once, too many altogether.
        """
        method = "single" if len(texts) == 1 else "batch"
        self._answers["te_request_count", method] += 1
        self._check_tokens(sum(text.tokens for text in texts))
        with self._permits(len(texts)):
            job = EmbeddingJob(tuple(text.tokens for text in texts))
            with self._runner.running(job) as progress:
                await progress.reach(1)
        self._answers["te_request_success", method] += 1

    def _check_tokens(self, tokens: int) -> None:
        """Refuse more tokens than one request may have, as hosted services do; TEI takes any."""
        most = self._spec.max_request_tokens
        if most is not None and tokens > most:
            message = f"Requested {tokens} tokens, max {most} tokens per request"
            raise self._refusal(400, "max_tokens_per_request", message)

    @contextmanager
    def _permits(self, texts: int) -> Iterator[None]:
        """Hold one permit for each text, as TEI does, or refuse at once."""
        spec = self._spec
        if not texts:
            raise self._refusal(400, "empty", "`inputs` cannot be empty")
        if texts > spec.max_client_batch:
            message = f"batch size {texts} > maximum allowed batch size {spec.max_client_batch}"
            raise self._refusal(422, "batch_size", message)
        if self._texts_inflight + texts > spec.max_concurrent_inputs:
            raise self._refusal(429, "overloaded", "Model is overloaded")
        self._texts_inflight += texts
        try:
            yield
        finally:
            self._texts_inflight -= texts

    def _refusal(self, status: int, kind: str, message: str) -> Refusal:
        self._answers["te_request_failure", kind] += 1
        return Refusal(status, kind, message)

    def _vectors(self, texts: Sequence[_Text]) -> list[bytes]:
        dimensions = self._spec.dimensions
        return [unit_vector(t.content, dimensions=dimensions, seed=self._seed) for t in texts]


def _texts(inputs: _Inputs) -> list[_Text]:
    if isinstance(inputs, str):
        return [_text(inputs)]
    ids = [one for one in inputs if isinstance(one, int)]
    if not ids:
        return [_text(one) for one in inputs if not isinstance(one, int)]
    if len(ids) < len(inputs):
        raise Refusal(*_MALFORMED, "inputs must be texts or token ids, not both")
    return [_text(ids)]


def _text(content: str | list[int]) -> _Text:
    if isinstance(content, str):
        return _Text(content, count_tokens(content))
    return _Text(repr(content), max(1, len(content)))
