"""What chat's requests took under the present share, against what they would take alone."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, hypot, log
from typing import TYPE_CHECKING, NamedTuple

from forebay.core.protection.slow import error, quick, upper

if TYPE_CHECKING:
    from forebay.core.model import TimingKind

# Readings after which there may be a judgement, and there has to be one. In between it is looked
# for whenever their number has doubled: who looks all the time finds what chance brings.
_FEW, _MANY = 20, 320
_LEAST_S = 3.0
# Readings in a row of which three in four are slower than slow ones may be need no more: chat is
# several times too slow, perhaps since a moment ago.
_ROW = 16
# At a new level fewer do, if they are so many times slower still: it may be far beyond what the
# engine can take, and each reading then takes long.
_TRIAL_ROW, _WRECKED = 5, 3.0
# How many standard errors from the target are certain (more, of few readings), and likely. With as
# many readings as there can be, any result below the target will do: a wrong step up is soon taken
# back, and more of them would not tell more where it is chat alone of which little is known.
_CERTAIN, _LIKELY = 2.5, 1.0
# Above the target, so much of what it allows is still right: where chat is about as slow whatever
# the share, a hair too much would take it down step by step, for nothing.
_STILL_RIGHT = 0.15
_FEW_DOUBTS = 8


class Verdict(StrEnum):
    """Chat's speed against the target."""

    TOO_SLOW = "too slow"
    RIGHT = "right"
    FAST = "fast enough"


class Judgement(NamedTuple):
    """What a window of readings says, of the kind that is slowest.

    Args:
        verdict: what follows.
        kind: of which readings.
        ratio: chat's slow readings over what they are alone.
    """

    verdict: Verdict
    kind: TimingKind
    ratio: float


@dataclass(slots=True)
class Window:
    """Readings of requests that began under the present share.

    It is sure before it speaks: a reading or two that are slow say nothing where chat scatters by
    itself, and where it does not they say a lot.

    Args:
        began_at: seconds.
        target: times over those alone that are just right.
        on_trial: the share has never been so high.
    """

    began_at: float
    target: float
    on_trial: bool = False
    _due: bool = False
    _row: Judgement | None = None
    _ratios: dict[TimingKind, deque[float]] = field(default_factory=dict)
    _alone: dict[TimingKind, tuple[float, float]] = field(default_factory=dict)

    @property
    def most(self) -> float:
        """Times over those alone that are not too slow yet."""
        return self.target + _STILL_RIGHT * (self.target - 1)

    def add(self, kind: TimingKind, ratio: float, slow: float, doubt: float) -> None:
        """Fold in a reading.

        Args:
            kind: what it measures.
            ratio: the reading over its expectation, a logarithm.
            slow: what slow ones are alone, a logarithm.
            doubt: standard error of `slow`.
        """
        ratios = self._ratios.get(kind)
        if ratios is None:
            ratios = self._ratios[kind] = deque(maxlen=_MANY)
        ratios.append(ratio)
        self._alone[kind] = slow, doubt
        looks, rest = divmod(len(ratios), _FEW)
        if not rest and looks & (looks - 1) == 0:  # a power of two
            self._due = True
        rows = [(_ROW, self.most)]
        if self.on_trial:
            rows.append((_TRIAL_ROW, _WRECKED * self.target))
        for length, most in rows:
            row = list(ratios)[-length:]
            if len(row) == length and quick(row) > slow + doubt + log(most):
                self._row = Judgement(Verdict.TOO_SLOW, kind, exp(upper(row) - slow))

    def judge(self, now: float) -> Judgement | None:
        """What the readings say; None while they do not."""
        if now - self.began_at < _LEAST_S:
            return None
        row, due = self._row, self._due
        self._row, self._due = None, False
        if row is not None or not due:
            return row
        found = [self._judge(*each) for each in self._ratios.items() if len(each[1]) >= _FEW]
        sure = [each for each in found if each is not None]
        slow = [each for each in sure if each.verdict is Verdict.TOO_SLOW]
        if slow or (sure and len(sure) == len(found)):
            return max(slow or sure, key=lambda each: each.ratio)
        return None

    def _judge(self, kind: TimingKind, ratios: deque[float]) -> Judgement | None:
        slow, slow_doubt = self._alone[kind]
        inflation = upper(ratios) - slow
        margin, doubt = inflation - log(self.target), hypot(error(ratios), slow_doubt)
        over = exp(inflation) > self.most
        count = len(ratios)
        certain = _CERTAIN * (1 + _FEW_DOUBTS / count)
        if over and margin > (certain if count < _MANY else _LIKELY) * doubt:
            verdict = Verdict.TOO_SLOW
        elif margin < -(certain if count < 2 * _FEW else _LIKELY) * doubt:
            verdict = Verdict.FAST
        elif count >= _MANY:
            verdict = Verdict.FAST if margin < 0 else Verdict.RIGHT
        else:
            return None
        return Judgement(verdict, kind, exp(inflation))
