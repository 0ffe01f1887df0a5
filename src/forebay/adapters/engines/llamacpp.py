"""llama.cpp's server.

Source: llama.cpp, ``tools/server/README.md``. ``/metrics`` needs ``--metrics`` (else 501); in
router mode a page belongs to one model, named in the query.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar

from forebay.adapters.engines.base import METRICS, Engine, above_zero, exposes, listed_by, metrics
from forebay.adapters.engines.reply import as_count, as_dict
from forebay.core.model import EngineState, Outcome, Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.engines.reply import Reply

_PROPS = "/props"
_RUNNING = "llamacpp:requests_processing"
_WAITING = "llamacpp:requests_deferred"
_KV_USAGE = "llamacpp:kv_cache_usage_ratio"  # removed in 2025
_WANTED = frozenset({_RUNNING, _WAITING, _KV_USAGE})


class LlamaCpp(Engine):
    """llama-server: a fixed number of slots, and a queue of deferred requests."""

    name: ClassVar[str] = "llamacpp"
    paths: ClassVar[tuple[str, ...]] = (METRICS, _PROPS)
    takes_token_ids: ClassVar[bool] = True

    def fits(self, replies: Mapping[str, Reply]) -> bool:  # noqa: D102 - see Engine
        return (
            exposes(replies, "llamacpp:")
            or listed_by(replies, "llamacpp")
            or (_PROPS in replies and "default_generation_settings" in _props(replies))
            or self._loading(replies)
        )

    def read(self, replies: Mapping[str, Reply], model: str, now: float) -> Signal:  # noqa: D102
        del model  # the page is of one model
        if self._loading(replies):
            return Signal(self.name, now, EngineState.LOADING)
        slots = as_count(_props(replies).get("total_slots"))
        if _unloaded(replies):
            return Signal(self.name, now)
        page = metrics(replies, _WANTED)
        if page is None:
            return Signal(self.name, now, slots=slots)
        running, waiting = page.sum(_RUNNING), page.sum(_WAITING)
        saturated = above_zero(waiting)
        if saturated and slots is not None and running is not None:
            # A request can wait for a particular slot while others are free.
            saturated = running >= slots
        return Signal(
            engine=self.name,
            at=now,
            running=running,
            waiting=waiting,
            kv_usage=page.ratio(_KV_USAGE),
            slots=slots,
            saturated=saturated,
            warnings=page.warnings,
        )

    def _loading(self, replies: Mapping[str, Reply]) -> bool:
        reply = replies.get(METRICS)
        return (
            reply is not None
            and self.classify(reply.status, reply.headers, reply.body) is Outcome.LOADING
        )


def _props(replies: Mapping[str, Reply]) -> dict[str, object]:
    reply = replies.get(_PROPS)
    return as_dict(reply.json()) if reply is not None and reply.ok else {}


def _unloaded(replies: Mapping[str, Reply]) -> bool:
    """Whether a router answers that the model is not in memory; the next request loads it."""
    reply = replies.get(METRICS)
    return (
        reply is not None
        and reply.status == HTTPStatus.BAD_REQUEST
        and b"not loaded" in reply.body[:4096]
    )
