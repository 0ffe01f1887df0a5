"""Infinity, whose queue is in its list of models rather than in its metrics.

Source: infinity, ``infinity_server.py`` and ``batch_handler.py``. Its API lives at the root unless
it was given a ``--url-prefix`` (mostly ``/v1``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from forebay.adapters.engines.base import MODEL_LISTS, Engine, check, listed_by
from forebay.adapters.engines.batching import BatchLimits
from forebay.adapters.engines.reply import as_dict, as_list, as_number
from forebay.core.model import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.adapters.engines.reply import Reply

_MAX_INPUTS = 2048  # of its request schema


class Infinity(Engine):
    """Infinity's server, which may hold several models, each with a queue of its own.

    Args:
        queue_batches: it counts as saturated when more than this many full batches wait. Its own
            queue_fraction is of 32,000 inputs and says nothing before all is lost.
    """

    name: ClassVar[str] = "infinity"
    paths: ClassVar[tuple[str, ...]] = MODEL_LISTS

    def __init__(self, queue_batches: float = 2.0) -> None:
        self._queue_batches = queue_batches

    def fits(self, replies: Mapping[str, Reply]) -> bool:  # noqa: D102 - see Engine
        return listed_by(replies, "infinity") or any(
            "queue_absolute" in as_dict(entry.get("stats")) for entry in _entries(replies)
        )

    def read(self, replies: Mapping[str, Reply], model: str, now: float) -> Signal:  # noqa: D102
        answered = {path: reply for path, reply in replies.items() if not reply.absent}
        for path, reply in answered.items():
            check(path, reply)
        entries = _entries(answered)
        if len(entries) > 1:
            entries = [entry for entry in entries if entry.get("id") == model]
        stats = as_dict(entries[0].get("stats")) if entries else {}
        waiting = as_number(stats.get("queue_absolute"))
        batch_size = as_number(stats.get("batch_size"))
        saturated = None
        if waiting is not None and batch_size is not None:
            saturated = waiting > self._queue_batches * batch_size
        return Signal(
            engine=self.name,
            at=now,
            waiting=waiting,
            waiting_unit="inputs",
            saturated=saturated,
        )

    def batch_limits(self, replies: Mapping[str, Reply]) -> BatchLimits:  # noqa: D102
        del replies
        return BatchLimits(max_inputs=_MAX_INPUTS)


def _entries(replies: Mapping[str, Reply]) -> list[dict[str, object]]:
    """The models of the first list that has any; both paths tell the same."""
    for path in MODEL_LISTS:
        if path in replies:
            data = as_list(as_dict(replies[path].json()).get("data"))
            if data:
                return [as_dict(entry) for entry in data]
    return []
