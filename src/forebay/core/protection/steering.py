"""From chat's readings to the shares: what is known of chat alone, the window, and the laws."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, inf, log
from typing import TYPE_CHECKING

from forebay.core.model import TimingKind
from forebay.core.protection.expected import Expected
from forebay.core.protection.pauses import Pauses
from forebay.core.protection.share import IdleShare, Move, Share
from forebay.core.protection.window import Window

if TYPE_CHECKING:
    from forebay.core.model import Timing
    from forebay.core.protection.settings import ProtectionSettings

# After two cuts that did not make chat fast, something else may be the cause.
_DOUBTFUL_CUTS = 2
# Another speed of chat alone that is worth a word.
_NOTABLE = 1.1


@dataclass(slots=True)
class Steering:
    """What chat's readings say on one GPU.

    Args:
        settings: see `ProtectionSettings`.
        used: best-effort work wanted more than it got since the window began.
        reason: why the share is what it is.
        ratio: chat's times over what they are alone, as judged last; None before.
        share: while chat is active.
        idle_share: while it is idle.
        pauses: to measure it alone.
        window: readings under the present share.
    """

    settings: ProtectionSettings
    used: bool = False
    reason: str = "start: chat has not been measured alone yet"
    ratio: float | None = None
    share: Share = field(init=False)
    pauses: Pauses = field(init=False)
    window: Window = field(init=False)
    idle_share: IdleShare = field(default_factory=IdleShare)
    _goals_s: dict[TimingKind, float | None] = field(init=False)
    _expected: dict[tuple[str, TimingKind], Expected] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = self.settings
        self.share = Share(settings.target, settings.min_duty, 1.0)
        self.pauses = Pauses(allowed=settings.min_duty < 1)
        self.window = Window(-inf, settings.target)
        self._goals_s = {
            TimingKind.FIRST_TOKEN: settings.first_token_s,
            TimingKind.OUTPUT_TOKEN: settings.output_token_s,
            TimingKind.WORK: None,
        }

    @property
    def known(self) -> bool:
        """Whether there is something to judge chat's return by."""
        return self.pauses.known or self.settings.first_token_s is not None

    def begin(self, now: float) -> None:
        """Begin a window."""
        self.window = Window(now, self.settings.target, on_trial=self.share.on_trial)
        self.used = False

    def learn(self, endpoint: str, timing: Timing, rate: float, now: float) -> bool:
        """Fold in a reading that was taken without best-effort work.

        Args:
            endpoint: whose it is.
            timing: the reading.
            rate: how many requests of chat start per second, lately.
            now: seconds.

        Returns:
            Whether chat alone turned out to have another speed.
        """
        moved = self._of(endpoint, timing).learn(timing, rate)
        self.pauses.measured(now)
        if 1 / _NOTABLE < moved < _NOTABLE:
            return False
        innocent = self.share.forget(moved)
        blame = "best-effort work is not the cause: " if innocent else ""
        self.reason = f"measured: {blame}chat alone takes {moved:.2f} × what it did"
        self.begin(now)
        return True

    def compare(  # noqa: PLR0913 - a reading, and how it came about, by name
        self,
        endpoint: str,
        timing: Timing,
        rate: float,
        now: float,
        *,
        settled: bool,
        met: int,
    ) -> bool:
        """Judge by a reading that was taken beside best-effort work.

        Args:
            endpoint: whose it is.
            timing: the reading.
            rate: how many requests of chat start per second, lately.
            now: seconds.
            settled: its request began under the present share.
            met: otherwise, best-effort requests that chat met when it came back; 0 if something
                else is why there were more than the share.

        Returns:
            Whether the share moved.
        """
        goal_s, allowed = self._goals_s[timing.kind], self.settings.target - 1
        ratio: float | None
        if goal_s is not None:
            ratio = log(self.settings.target * timing.seconds / goal_s)
            slow = tail = doubt = 0.0
        else:
            expected = self._of(endpoint, timing)
            ratio = expected.ratio(timing, rate)
            slow, tail, doubt = expected.slow, expected.tail, expected.doubt
        moved = False
        if ratio is not None:
            excess = (exp(ratio - max(slow, tail)) - 1) / allowed
            if timing.kind is not TimingKind.OUTPUT_TOKEN:
                self.idle_share.read(0 if settled else met, excess)
            if settled or (met and excess <= 1):
                self.window.add(timing.kind, ratio, slow, doubt)
                moved = self._judge(now)
        if goal_s is None:
            doubtful = ratio is None or self.share.cuts >= _DOUBTFUL_CUTS
            self.pauses.consider(now, doubtful=doubtful)
        return moved

    def _judge(self, now: float) -> bool:
        found = self.window.judge(now)
        if found is None:
            return False
        self.ratio = found.ratio
        move = self.share.judge(found.verdict, found.ratio, now, used=self.used)
        target, goal_s = self.settings.target, self._goals_s[found.kind]
        if goal_s is None:
            what = f"{found.ratio:.2f} × alone, target {target:g}"
        else:
            what = f"{found.ratio / target:.2f} × its goal of {goal_s:g} s"
        self.reason = f"{move}: {found.kind.replace('_', ' ')} {what}"
        self.begin(now)
        return move is not Move.HELD

    def _of(self, endpoint: str, timing: Timing) -> Expected:
        return self._expected.setdefault((endpoint, timing.kind), Expected())
