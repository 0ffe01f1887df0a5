"""Counters between two reads. One that went backwards was reset: its server restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.model import Signal


def increase(before: float | None, after: float | None) -> float | None:
    """By how much a counter grew; None when unknown.

    A reset counts as no growth rather than as everything since the restart: a sum over engines
    also falls when one of them goes away, and then the rest is old.
    """
    if before is None or after is None:
        return None
    return max(0.0, after - before)


def mean_queue_s(before: Signal | None, after: Signal) -> float | None:
    """Mean seconds that requests waited in the engine between two reads.

    Since the engine's start, if there is no earlier read; None when nobody was served, or the
    engine does not tell.
    """
    seconds, count = after.queue_seconds, after.queued
    if before is not None:
        seconds = increase(before.queue_seconds, seconds)
        count = increase(before.queued, count)
    return seconds / count if seconds is not None and count else None
