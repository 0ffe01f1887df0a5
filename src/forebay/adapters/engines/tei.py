"""Hugging Face's Text Embeddings Inference.

Source: text-embeddings-inference, ``router/src/prometheus.rs``, ``core/src/queue.rs`` and
``router/src/http/server.rs``. It counts inputs, not requests, in its queue and in its permits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from forebay.adapters.engines.base import METRICS, Engine, exposes, metrics, names
from forebay.adapters.engines.batching import TEI_MAX_BODY_BYTES, BatchLimits
from forebay.adapters.engines.reply import as_count, as_dict
from forebay.core.model import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.engines.reply import Reply

_INFO = "/info"
_WAITING = "te_queue_size"
_FAILURES = "te_request_failure"
_BATCH = "te_batch_next_size"
_QUEUE = "te_embed_queue_duration"
_WANTED = frozenset({_WAITING, _FAILURES}) | names((f"{_BATCH}_", f"{_QUEUE}_"), ("sum", "count"))


class Tei(Engine):
    """TEI's router.

    Args:
        queue_batches: it counts as saturated when more than this many batches of its usual size
            wait.
    """

    name: ClassVar[str] = "tei"
    paths: ClassVar[tuple[str, ...]] = (METRICS, _INFO)

    def __init__(self, queue_batches: float = 2.0) -> None:
        self._queue_batches = queue_batches

    def fits(self, replies: Mapping[str, Reply]) -> bool:  # noqa: D102 - see Engine
        info = _info(replies)
        return exposes(replies, "te_") or ("max_client_batch_size" in info and "router" not in info)

    def read(self, replies: Mapping[str, Reply], model: str, now: float) -> Signal:  # noqa: D102
        del model  # it serves one, and its metrics do not name it
        page = metrics(replies, _WANTED)
        if page is None:
            return Signal(self.name, now, waiting_unit="inputs")
        waiting = page.value(_WAITING)
        batch = page.mean(_BATCH)
        saturated = None
        if waiting == 0:
            saturated = False
        elif waiting is not None and batch is not None:
            saturated = waiting > self._queue_batches * batch
        return Signal(
            engine=self.name,
            at=now,
            waiting=waiting,
            waiting_unit="inputs",
            # Other values of err are the caller's fault.
            rejections=page.sum(_FAILURES, err="overloaded"),
            queue_seconds=page.sum(f"{_QUEUE}_sum"),
            queued=page.sum(f"{_QUEUE}_count"),
            saturated=saturated,
            warnings=page.warnings,
        )

    def batch_limits(self, replies: Mapping[str, Reply]) -> BatchLimits:  # noqa: D102
        info = _info(replies)
        return BatchLimits(
            max_inputs=as_count(info.get("max_client_batch_size")),
            max_body_bytes=TEI_MAX_BODY_BYTES,
            max_inputs_in_flight=as_count(info.get("max_concurrent_requests")),
        )


def _info(replies: Mapping[str, Reply]) -> dict[str, object]:
    reply = replies.get(_INFO)
    return as_dict(reply.json()) if reply is not None and reply.ok else {}
