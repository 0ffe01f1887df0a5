"""vLLM, also where Ray re-exports its metrics.

Source: vLLM's production metrics, https://docs.vllm.ai/en/stable/usage/metrics/, V0 to 0.32.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar

from forebay.adapters.engines.base import (
    METRICS,
    Engine,
    above_zero,
    exposes,
    listed_by,
    metrics,
    names,
)
from forebay.adapters.engines.reply import as_dict, parse_json
from forebay.core.model import EngineState, Outcome, Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.engines.exposition import Exposition
    from forebay.adapters.engines.reply import Reply

_PREFIXES = ("vllm:", "ray_vllm_")
_WANTED = names(
    _PREFIXES,
    (
        "num_requests_running",
        "num_requests_waiting",
        "num_requests_waiting_by_reason",
        "num_requests_swapped",
        "kv_cache_usage_perc",
        "gpu_cache_usage_perc",
        "num_preemptions_total",
        "admission_rejections_total",
        "engine_sleep_state",
        "request_queue_time_seconds_sum",
        "request_queue_time_seconds_count",
    ),
)


class Vllm(Engine):
    """vLLM's OpenAI server; one URL may hide several data-parallel engines."""

    name: ClassVar[str] = "vllm"
    paths: ClassVar[tuple[str, ...]] = (METRICS,)
    takes_token_ids: ClassVar[bool] = True

    def fits(self, replies: Mapping[str, Reply]) -> bool:  # noqa: D102 - see Engine
        return exposes(replies, *_PREFIXES) or listed_by(replies, "vllm")

    def read(self, replies: Mapping[str, Reply], model: str, now: float) -> Signal:  # noqa: D102
        page = metrics(replies, _WANTED)
        if page is None:
            return Signal(self.name, now)
        page = page.without_prefix(*_PREFIXES).for_model("model_name", model)
        if _asleep(page):
            # It reports zeros, which would make it look like the least loaded of all.
            return Signal(self.name, now, EngineState.ASLEEP, warnings=page.warnings)
        by_reason = "num_requests_waiting_by_reason"
        capacity = page.sum(by_reason, reason="capacity")
        waiting = page.sum("num_requests_waiting")
        if waiting is None:
            waiting = page.sum(by_reason)
        if capacity is None:  # before the breakdown by reason; only V0 engines swap
            swapped = page.sum("num_requests_swapped")
            saturated = above_zero(waiting, 0 if swapped is None else swapped)
        else:
            saturated = capacity > 0
        kv_usage = page.ratio("kv_cache_usage_perc")
        if kv_usage is None:  # its name up to 0.10
            kv_usage = page.ratio("gpu_cache_usage_perc")
        return Signal(
            engine=self.name,
            at=now,
            running=page.sum("num_requests_running"),
            waiting=waiting,
            waiting_capacity=capacity,
            waiting_deferred=page.sum(by_reason, reason="deferred"),
            kv_usage=kv_usage,
            preemptions=page.sum("num_preemptions_total"),
            rejections=page.sum("admission_rejections_total"),
            queue_seconds=page.sum("request_queue_time_seconds_sum"),
            queued=page.sum("request_queue_time_seconds_count"),
            saturated=saturated,
            warnings=page.warnings,
        )

    def classify(self, status: int, headers: Mapping[str, str], body: bytes) -> Outcome:  # noqa: D102
        outcome = super().classify(status, headers, body)
        # Its own 503, in its own error shape, is the full queue (--max-num-queued-reqs); a proxy's
        # has no such shape.
        if (
            status == HTTPStatus.SERVICE_UNAVAILABLE
            and outcome is Outcome.FAILURE
            and _is_own_error(body)
        ):
            return Outcome.CONGESTION
        return outcome


def _asleep(page: Exposition) -> bool:
    """Whether every engine sleeps; without the family, none does."""
    awake = page.max("engine_sleep_state", sleep_state="awake")
    if awake is not None:
        return awake == 0
    return bool(page.max("engine_sleep_state"))


def _is_own_error(body: bytes) -> bool:
    told = as_dict(parse_json(body.decode("utf-8", errors="replace")))
    return "error" in told or told.get("object") == "error"  # the latter up to 0.10
