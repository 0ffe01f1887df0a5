"""Triton Inference Server, with the TensorRT-LLM backend or without.

Source: triton-inference-server, ``docs/user_guide/metrics.md``, and tensorrtllm_backend's README.
Its metrics have a port of their own (8002), hence a metrics URL of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from forebay.adapters.engines.base import METRICS, Engine, above_zero, exposes, metrics
from forebay.core.model import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.engines.reply import Reply

_REQUESTS = "nv_trt_llm_request_metrics"
_KV_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
_PENDING = "nv_inference_pending_request_count"
_QUEUE_US = "nv_inference_queue_summary_us"
_WANTED = frozenset({_REQUESTS, _KV_BLOCKS, _PENDING, f"{_QUEUE_US}_sum", f"{_QUEUE_US}_count"})


class Triton(Engine):
    """Triton: of an ensemble's several models only the one in question counts."""

    name: ClassVar[str] = "triton"
    paths: ClassVar[tuple[str, ...]] = (METRICS,)

    def fits(self, replies: Mapping[str, Reply]) -> bool:  # noqa: D102 - see Engine
        return exposes(replies, "nv_inference_", "nv_trt_llm_")

    def read(self, replies: Mapping[str, Reply], model: str, now: float) -> Signal:  # noqa: D102
        page = metrics(replies, _WANTED)
        if page is None:
            return Signal(self.name, now)
        page = page.for_model("model", model)
        waiting = page.sum(_REQUESTS, request_type="waiting")
        if waiting is None:
            waiting = page.sum(_PENDING)
        queue_us = page.sum(f"{_QUEUE_US}_sum")
        return Signal(
            engine=self.name,
            at=now,
            running=page.sum(_REQUESTS, request_type="scheduled"),
            waiting=waiting,
            kv_usage=page.ratio(_KV_BLOCKS, kv_cache_block_type="fraction"),
            queue_seconds=None if queue_us is None else queue_us / 1e6,
            queued=page.sum(f"{_QUEUE_US}_count"),
            saturated=above_zero(waiting),
            warnings=page.warnings,
        )
