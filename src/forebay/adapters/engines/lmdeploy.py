"""LMDeploy, started with metrics enabled. Source: LMDeploy, ``lmdeploy/metrics/loggers.py``."""

from __future__ import annotations

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
from forebay.core.model import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.engines.reply import Reply

_PREFIXES = ("lmdeploy:",)
_WANTED = names(
    _PREFIXES,
    (
        "num_requests_running",
        "num_requests_waiting",
        "num_api_requests_waiting",
        "gpu_cache_usage_perc",
    ),
)


class Lmdeploy(Engine):
    """LMDeploy's API server, which queues twice: for a request handle, then in the scheduler."""

    name: ClassVar[str] = "lmdeploy"
    paths: ClassVar[tuple[str, ...]] = (METRICS,)

    def fits(self, replies: Mapping[str, Reply]) -> bool:  # noqa: D102 - see Engine
        return exposes(replies, *_PREFIXES) or listed_by(replies, "lmdeploy")

    def read(self, replies: Mapping[str, Reply], model: str, now: float) -> Signal:  # noqa: D102
        page = metrics(replies, _WANTED)
        if page is None:
            return Signal(self.name, now)
        page = page.without_prefix(*_PREFIXES).for_model("model_name", model)
        in_scheduler = page.sum("num_requests_waiting")
        for_handle = page.sum("num_api_requests_waiting") or 0  # older versions lack it
        return Signal(
            engine=self.name,
            at=now,
            running=page.sum("num_requests_running"),
            waiting=None if in_scheduler is None else in_scheduler + for_handle,
            kv_usage=page.ratio("gpu_cache_usage_perc"),
            saturated=above_zero(in_scheduler, for_handle),
            warnings=page.warnings,
        )
