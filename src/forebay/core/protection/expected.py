"""What chat's readings would be without best-effort work."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import exp, log, log2
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.model import Timing, TimingKind

# Readings from which a cell is believed, and how many its mean looks back.
_ENOUGH = 4
_MEMORY = 64
# How many of the last readings tell how far chat scatters by itself.
_SCATTER = 128
_FEW = 8
_MIN_SECONDS = 1e-6
# Size classes are doublings; a reading may be judged by its neighbour's.
_NEAR = 1
# Chat's own company slows it too. Levels beyond this one are all the same.
_MOST_LEVEL = 10


@dataclass(slots=True)
class _Cell:
    """Readings of about one size, with about as much chat in flight."""

    count: int = 0
    log_s: float = 0.0

    def learn(self, log_s: float) -> None:
        self.count = min(self.count + 1, _MEMORY)
        self.log_s += (log_s - self.log_s) / self.count


@dataclass(slots=True)
class Expected:
    """The readings of one kind from one endpoint, by size and by how much chat was in flight."""

    _cells: dict[tuple[int, int], _Cell] = field(default_factory=dict)
    _scatter: deque[float] = field(default_factory=lambda: deque(maxlen=_SCATTER))

    def learn(self, timing: Timing, chats: int) -> None:
        """Fold in a reading that was taken without best-effort work."""
        ratio = self.ratio(timing, chats)
        if ratio is not None:
            self._scatter.append(ratio)
        key = _key(timing, chats)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell()
        cell.learn(log(max(timing.seconds, _MIN_SECONDS)))

    def ratio(self, timing: Timing, chats: int) -> float | None:
        """How many times its expectation a reading is; None where there is none yet."""
        cell = self._nearest(*_key(timing, chats))
        if cell is None:
            return None
        return max(timing.seconds, _MIN_SECONDS) / exp(cell.log_s)

    @property
    def scatter(self) -> float | None:
        """How slow the slow ones are without best-effort work; None until that is known."""
        return slow(self._scatter) if len(self._scatter) >= _FEW else None

    @property
    def typical_s(self) -> float | None:
        """The usual reading, seconds; None while nothing is known."""
        known = [cell for cell in self._cells.values() if cell.count >= _ENOUGH]
        if not known:
            return None
        return exp(max(known, key=lambda cell: cell.count).log_s)

    def doubt(self) -> None:
        """Give new readings as much weight as all that are there."""
        for cell in self._cells.values():
            cell.count = min(cell.count, _ENOUGH)
        self._scatter.clear()

    def _nearest(self, size: int, level: int) -> _Cell | None:
        """The cell of that size whose level is nearest; else one of the next size."""
        best, best_distance = None, None
        for (other_size, other_level), cell in self._cells.items():
            if cell.count < _ENOUGH or abs(other_size - size) > _NEAR:
                continue
            distance = (abs(other_size - size), abs(other_level - level))
            if best_distance is None or distance < best_distance:
                best, best_distance = cell, distance
        return best


def slow(ratios: deque[float]) -> float:
    """What the slow ones take: the geometric mean of the upper third.

    It stands for a high percentile, which so few readings do not tell.
    """
    ordered = sorted(ratios)
    slowest = ordered[-max(1, len(ordered) // 3) :]
    return exp(sum(map(log, slowest)) / len(slowest))


def _key(timing: Timing, chats: int) -> tuple[int, int]:
    return int(log2(max(1.0, timing.size))), min((max(1, chats) - 1).bit_length(), _MOST_LEVEL)


ExpectedByKind = dict[tuple[str, "TimingKind"], Expected]
