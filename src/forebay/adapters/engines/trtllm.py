"""TensorRT-LLM's own server, ``trtllm-serve``, whose ``/metrics`` is a JSON list of iterations.

Source: TensorRT-LLM, ``tensorrt_llm/serve/openai_server.py``. Reading drains the list: an empty one
says that nothing ran since the last read by anybody, not that nothing waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from forebay.adapters.engines.base import METRICS, Engine, above_zero, check, listed_by
from forebay.adapters.engines.reply import as_count, as_dict, as_list, as_number
from forebay.core.model import Signal
from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.engines.reply import Reply


class TrtLlm(Engine):
    """trtllm-serve."""

    name: ClassVar[str] = "trtllm"
    paths: ClassVar[tuple[str, ...]] = (METRICS,)

    def fits(self, replies: Mapping[str, Reply]) -> bool:  # noqa: D102 - see Engine
        reply = replies.get(METRICS)
        newest = _newest(reply.json()) if reply is not None else {}
        return "numActiveRequests" in newest or listed_by(replies, "tensorrt_llm")

    def read(self, replies: Mapping[str, Reply], model: str, now: float) -> Signal:  # noqa: D102
        del model  # it serves one
        reply = replies.get(METRICS)
        if reply is None:
            raise ScrapeFailed(f"{METRICS} was not read")
        if reply.absent:
            return Signal(self.name, now)
        check(METRICS, reply)
        page = reply.json()
        if not isinstance(page, list):
            raise ScrapeFailed(f"{METRICS} is not a JSON list of iterations")
        newest = _newest(page)
        blocks = as_dict(newest.get("kvCacheStats"))
        used, most = as_number(blocks.get("usedNumBlocks")), as_number(blocks.get("maxNumBlocks"))
        waiting = as_number(newest.get("numQueuedRequests"))
        return Signal(
            engine=self.name,
            at=now,
            running=as_number(newest.get("numActiveRequests")),
            waiting=waiting,
            kv_usage=used / most if used is not None and most else None,
            slots=as_count(newest.get("maxNumActiveRequests")),
            saturated=above_zero(waiting),
        )


def _newest(page: object) -> dict[str, object]:
    """The iteration with the highest number."""
    iterations = [as_dict(entry) for entry in as_list(page)]
    return max(iterations, key=lambda entry: as_number(entry.get("iter")) or 0, default={})
