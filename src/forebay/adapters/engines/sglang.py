"""SGLang, started with ``--enable-metrics``.

Source: SGLang's production metrics, https://docs.sglang.ai/references/production_metrics.html, and
its ``observability/metrics_collector.py``. Its gRPC workers export the same names with ``_``.
"""

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

    from forebay.adapters.engines.exposition import Exposition
    from forebay.adapters.engines.reply import Reply

_PREFIXES = ("sglang:", "sglang_")
_WANTED = names(
    _PREFIXES,
    (
        "num_running_reqs",
        "num_queue_reqs",
        "token_usage",
        "num_retracted_requests_total",
        "queue_time_seconds_sum",
        "queue_time_seconds_count",
    ),
)


class Sglang(Engine):
    """SGLang's server."""

    name: ClassVar[str] = "sglang"
    paths: ClassVar[tuple[str, ...]] = (METRICS,)
    takes_token_ids: ClassVar[bool] = True

    def fits(self, replies: Mapping[str, Reply]) -> bool:  # noqa: D102 - see Engine
        return exposes(replies, *_PREFIXES) or listed_by(replies, "sglang")

    def read(self, replies: Mapping[str, Reply], model: str, now: float) -> Signal:  # noqa: D102
        page = metrics(replies, _WANTED)
        if page is None:
            return Signal(self.name, now)
        page = page.without_prefix(*_PREFIXES).for_model("model_name", model)
        waiting = _total(page, "num_queue_reqs")
        return Signal(
            engine=self.name,
            at=now,
            running=_total(page, "num_running_reqs"),
            waiting=waiting,
            kv_usage=page.ratio("token_usage"),
            preemptions=_total(page, "num_retracted_requests_total"),
            queue_seconds=page.sum("queue_time_seconds_sum"),
            queued=page.sum("queue_time_seconds_count"),
            saturated=above_zero(waiting),
            warnings=page.warnings,
        )


def _total(page: Exposition, name: str) -> float | None:
    """With priority scheduling, the series with an empty priority is the total of the others."""
    total = page.sum(name, priority="")
    return page.sum(name) if total is None else total
