"""Hugging Face's Text Generation Inference.

Source: https://huggingface.co/docs/text-generation-inference/reference/metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from forebay.adapters.engines.base import METRICS, Engine, above_zero, exposes, metrics
from forebay.adapters.engines.reply import as_dict
from forebay.core.model import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.engines.reply import Reply

_RUNNING = "tgi_batch_current_size"
_WAITING = "tgi_queue_size"
_FAILURES = "tgi_request_failure"
_WANTED = frozenset({_RUNNING, _WAITING, _FAILURES})


class Tgi(Engine):
    """TGI's router."""

    name: ClassVar[str] = "tgi"
    paths: ClassVar[tuple[str, ...]] = (METRICS,)

    def fits(self, replies: Mapping[str, Reply]) -> bool:  # noqa: D102 - see Engine
        info = replies.get("/info")
        router = as_dict(info.json()).get("router") if info is not None else None
        return exposes(replies, "tgi_") or router == "text-generation-router"

    def read(self, replies: Mapping[str, Reply], model: str, now: float) -> Signal:  # noqa: D102
        del model  # it serves one, and its metrics do not name it
        page = metrics(replies, _WANTED)
        if page is None:
            return Signal(self.name, now)
        waiting = page.value(_WAITING)
        return Signal(
            engine=self.name,
            at=now,
            running=page.value(_RUNNING),
            waiting=waiting,
            rejections=page.sum(_FAILURES, err="overloaded"),
            saturated=above_zero(waiting),
            warnings=page.warnings,
        )
