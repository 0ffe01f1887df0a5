"""Looking at sessions of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay import Session


def inflight(fb: Session, group: str = "gpu") -> int:
    """What runs on a GPU; its members' counts add up to it, or the test fails."""
    found = fb.status()["groups"][group]
    members = sum(sum(counts.values()) for counts in found["members"].values())
    assert members == found["inflight"] >= 0
    return found["inflight"]


def waiting(fb: Session, group: str = "gpu") -> int:
    return sum(fb.status()["groups"][group]["queued"].values())
