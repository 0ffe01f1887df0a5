"""Ollama, which has no metrics: only what is in memory is told.

Source: Ollama, ``docs/api.md`` (``GET /api/ps``) and ``llm/server.go`` (the states of a runner,
which it passes on with 500).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar

from forebay.adapters.engines.base import Engine, check
from forebay.adapters.engines.reply import as_dict, as_list, as_number
from forebay.core.model import Outcome, Signal
from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.engines.reply import Reply

_LOADED = "/api/ps"
_LOOK_BYTES = 4096
_RUNNER_STATES = (
    (b"llm server loading model", Outcome.LOADING),
    (b"no slots available", Outcome.CONGESTION),
)


class Ollama(Engine):
    """Ollama's server. Its load is unknown, which is not zero."""

    name: ClassVar[str] = "ollama"
    paths: ClassVar[tuple[str, ...]] = (_LOADED,)

    def fits(self, replies: Mapping[str, Reply]) -> bool:  # noqa: D102 - see Engine
        reply = replies.get(_LOADED)
        return reply is not None and reply.ok and _models(reply) is not None

    def read(self, replies: Mapping[str, Reply], model: str, now: float) -> Signal:  # noqa: D102
        reply = replies.get(_LOADED)
        if reply is None:
            raise ScrapeFailed(f"{_LOADED} was not read")
        if reply.absent:
            return Signal(self.name, now)
        check(_LOADED, reply)
        models = _models(reply)
        if models is None:
            raise ScrapeFailed(f"{_LOADED} does not list models")
        return Signal(self.name, now, resident=_share_in_vram(models, model))

    def classify(self, status: int, headers: Mapping[str, str], body: bytes) -> Outcome:  # noqa: D102
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            start = body[:_LOOK_BYTES]
            for words, outcome in _RUNNER_STATES:
                if words in start:
                    return outcome
        return super().classify(status, headers, body)


def _models(reply: Reply) -> list[dict[str, object]] | None:
    models = as_dict(reply.json()).get("models")
    return [as_dict(entry) for entry in as_list(models)] if isinstance(models, list) else None


def _share_in_vram(models: list[dict[str, object]], model: str) -> float | None:
    """Zero when the model is not loaded; None when its sizes are not told."""
    # A name without a tag means :latest.
    wanted = {model, f"{model}:latest", model.removesuffix(":latest")}
    entry = next((entry for entry in models if entry.get("name") in wanted), None)
    if entry is None:
        return 0.0
    size, in_vram = as_number(entry.get("size")), as_number(entry.get("size_vram"))
    return in_vram / size if in_vram is not None and size else None
