"""What chat's requests took under the present share."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.core.protection.expected import slow

if TYPE_CHECKING:
    from forebay.core.model import TimingKind

_MOST = 64
# Readings of a kind that a judgement needs; plainly bad ones need fewer.
ENOUGH = 24
_FEW = 6
_PLAINLY = 1.5
_MIN_S = 1.0


@dataclass(slots=True)
class Window:
    """Ratios to what was expected, by kind, of requests that began under the present share.

    Args:
        began_at: seconds.
    """

    began_at: float
    _ratios: dict[TimingKind, deque[float]] = field(default_factory=dict)
    _fresh: int = 0  # readings since the last look

    def add(self, kind: TimingKind, ratio: float) -> None:
        """A reading, against what chat alone would have taken."""
        ratios = self._ratios.get(kind)
        if ratios is None:
            ratios = self._ratios[kind] = deque(maxlen=_MOST)
        ratios.append(ratio)
        self._fresh += 1

    def worst(self, target: float, now: float) -> tuple[TimingKind, float] | None:
        """The kind that is slowest, and what its slow ones take, once there is enough to go by."""
        worst = None
        plain = False
        enough = self._fresh >= ENOUGH and now - self.began_at >= _MIN_S
        for kind, ratios in self._ratios.items():
            if len(ratios) < _FEW:
                continue
            ratio = slow(ratios)
            # One slow reading of six would be the quantile; most of them must be slow.
            plain = plain or sorted(ratios)[len(ratios) // 3] > 1 + _PLAINLY * (target - 1)
            if (len(ratios) >= ENOUGH or plain) and (worst is None or ratio > worst[1]):
                worst = kind, ratio
        if worst is None or not (enough or plain):
            return None
        self._fresh = 0
        return worst
