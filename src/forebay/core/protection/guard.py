"""The gate between best-effort work and a GPU where chat runs, and its accounts.

It counts requests, not their weights: what heavier ones cost chat shows in chat's times. The share
is that of all endpoints on the GPU together, whether or not they share a budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, inf, log
from typing import TYPE_CHECKING

from forebay.core.model import TimingKind
from forebay.core.protection.expected import Expected
from forebay.core.protection.pace import Pace
from forebay.core.protection.pauses import Pauses
from forebay.core.protection.rhythm import Rhythm
from forebay.core.protection.share import IdleShare, Move, Share
from forebay.core.protection.window import Window

if TYPE_CHECKING:
    from forebay.core.grant import Grant
    from forebay.core.member import Member
    from forebay.core.model import Timing
    from forebay.core.observer import Observer
    from forebay.core.protection.settings import ProtectionSettings
    from forebay.core.room import Room

# After two cuts that did not make chat fast, something else may be the cause.
_DOUBTFUL_CUTS = 2
# Another speed of chat alone that is worth a word.
_NOTABLE = 1.1
_MOST_SLOTS = 10**6
# A start is put off for as many of chat's first-token times, at most.
_PATIENCE, _GAIN = 2.0, 0.1


@dataclass(slots=True, eq=False, repr=False)
class Guard:
    """Protects chat on one GPU.

    Args:
        group: the GPU group.
        settings: see `ProtectionSettings`.
        observer: hears of the share.
        rooms: where best-effort work on this GPU starts.
        reason: why the share is what it is.
        ratio: chat's times over what they are alone, as judged last; None before.
        chats: requests of chat in flight.
        bulk: best-effort requests in flight.
    """

    group: str
    settings: ProtectionSettings
    observer: Observer
    rooms: list[Room] = field(default_factory=list, init=False)
    reason: str = field(default="start: chat has not been measured alone yet", init=False)
    ratio: float | None = field(default=None, init=False)
    chats: int = field(default=0, init=False)
    bulk: int = field(default=0, init=False)
    _share: Share = field(init=False)
    _window: Window = field(init=False)
    _pauses: Pauses = field(init=False)
    _idle_share: IdleShare = field(default_factory=IdleShare, init=False)
    _pace: Pace = field(default_factory=Pace, init=False)
    _rhythm: Rhythm = field(default_factory=Rhythm, init=False)
    _expected: dict[tuple[str, TimingKind], Expected] = field(default_factory=dict, init=False)
    _floors: int = field(default=0, init=False)
    _used: bool = field(default=False, init=False)  # more was wanted since the window began
    # Requests that began since then did so under the present share; infinity until what is beyond
    # it has drained. What chat met when it came back, if its idle time is why there was more.
    _settled_at: float = field(default=-inf, init=False)
    _met: int = field(default=0, init=False)
    _bulk_ended_at: float = field(default=-inf, init=False)
    _awaiting: int = field(default=0, init=False)  # requests of chat without a first token yet

    def __post_init__(self) -> None:
        least = self.settings.min_duty
        self._share = Share(self.settings.target, least, 1.0)
        self._pauses = Pauses(allowed=least < 1)
        self._window = Window(-inf, self.settings.target)

    def __repr__(self) -> str:
        return f"<Guard {self.group}: share {self.share:.2f}, {self.bulk} in flight>"

    def watch(self, room: Room, floor: int) -> None:
        """Guard a room too, for an endpoint there with a best-effort floor of `floor` slots."""
        if room not in self.rooms:
            self.rooms.append(room)
        self._floors += floor
        self._share.value = float(max(1, self._floors))
        self._share.least = self.settings.min_duty * self._share.value

    @property
    def share(self) -> float:
        """Best-effort slots that chat bears while it is active; below 1 a part of the time."""
        return self._share.value

    def state(self, now: float) -> str:
        """What goes on, in a word: idle, protecting, paused (the share is below 1) or measuring."""
        if self.measuring:
            return "measuring"
        if not self._active(now):
            return "idle"
        return "paused" if not self.bulk and self.holds(now) else "protecting"

    @property
    def measuring(self) -> bool:
        """Whether best-effort work pauses, so that chat is measured alone."""
        return self._pauses.began_at is not None

    # -- the gate ----------------------------------------------------------------------------------

    def holds(self, now: float) -> bool:
        """Whether no best-effort work may start now."""
        if self.measuring:
            return True
        if not self._active(now):
            return self.bulk >= self._idle_slots(now)
        self._pass_time(now)
        return self._pace.holds(self.bulk, self.share, put_off=self._awaiting > 0)

    def wanted(self) -> None:
        """Note that best-effort work waits for this gate."""
        self._used = True

    def opens_at(self, now: float) -> float:
        """When it is worth a look although nothing happens; infinity if never."""
        if self.measuring:
            return min(self._pauses.ends_at, inf if self.chats else self._rhythm.gone_at)
        if not self._active(now):
            return self._rhythm.grows_at(now)
        idle_at = inf if self.chats else self._rhythm.idle_at
        self._pass_time(now)
        opens_at = self._pace.opens_at(self.bulk, self.share, now, put_off=self._awaiting > 0)
        return min(idle_at, opens_at)

    def look(self, now: float) -> None:
        """End a pause that has taken too long, or that chat has left."""
        gone = not self.chats and now >= self._rhythm.gone_at
        if self.measuring and (gone or now >= self._pauses.ends_at):
            self._pauses.end(now)
            self._begin_window(now)

    def _active(self, now: float) -> bool:
        """Whether chat runs, or is about to."""
        return self.chats > 0 or now < self._rhythm.idle_at

    def _idle_slots(self, now: float) -> int:
        known = self._pauses.known
        slots = max(self.share, self._idle_share.value if known else self.share)
        return int(min(slots * self._rhythm.growth(now, known=known), _MOST_SLOTS))

    def _pass_time(self, now: float) -> None:
        self._pace.pass_time(self.bulk if self._settled_at < inf else 0, self.share, now)

    # -- the accounts ------------------------------------------------------------------------------

    def started(self, member: Member, now: float) -> None:
        """A request starts."""
        if not member.interactive:
            self._pass_time(now)
            self.bulk += 1
            return
        if not self.chats:
            was_active = self._active(now)
            if not was_active:
                self._pace.forgive(now)
            if self.bulk > self.share and not was_active:
                long_idle = self._rhythm.growth(now, known=self._pauses.known) > 1
                self._met = 0 if long_idle else self.bulk
                self._settled_at = inf
            else:
                self._met = 0
            self._rhythm.came(now)
        self._rhythm.asked(now)
        self.chats += 1
        self._awaiting += 1

    def answered(self, grant: Grant, now: float) -> None:
        """A request has got the first of its answer."""
        if grant.member.interactive:
            self._awaiting -= 1
            patience_s = _PATIENCE * (now - grant.at)
            self._pace.patience_s += _GAIN * (patience_s - self._pace.patience_s)

    def ended(self, grant: Grant, now: float) -> None:
        """A request ends."""
        if grant.member.interactive:
            self._awaiting -= not grant.answered
            self.chats -= 1
            if not self.chats:
                self._rhythm.left(now)
            return
        self._pass_time(now)
        self.bulk -= 1
        if not self.bulk:
            self._bulk_ended_at = now
        if self._settled_at == inf and self._settled:
            self._settled_at = now

    @property
    def _settled(self) -> bool:
        return self.bulk < self.share + 1

    def read(self, member: Member, timing: Timing, started_at: float, now: float) -> None:
        """A reading of chat: learn from it, and judge the share by it."""
        if not member.interactive or not timing.seconds > 0:
            return
        key = member.state.endpoint.id, timing.kind
        expected = self._expected.get(key)
        if expected is None:
            expected = self._expected[key] = Expected()
        if not self.bulk and started_at >= self._bulk_ended_at and not self._paces:
            self._learn(expected, timing, now)
        elif not self.measuring:
            self._compare(expected, timing, started_at, now)

    @property
    def _paces(self) -> bool:
        """Whether best-effort work that waits is between two starts: that is no time without it."""
        return not self.measuring and any(room.bulk_waiting for room in self.rooms)

    def _compare(self, expected: Expected, timing: Timing, started_at: float, now: float) -> None:
        goal_s = {
            TimingKind.FIRST_TOKEN: self.settings.first_token_s,
            TimingKind.OUTPUT_TOKEN: self.settings.output_token_s,
        }.get(timing.kind)
        if goal_s is not None:
            ratio: float | None = log(self.settings.target * timing.seconds / goal_s)
            slow = tail = doubt = 0.0
        else:
            ratio = expected.ratio(timing, self._rhythm.rate(now))
            slow, tail, doubt = expected.slow, expected.tail, expected.doubt
        if ratio is not None:
            excess = (exp(ratio - max(slow, tail)) - 1) / (self.settings.target - 1)
            hung_over = started_at < self._settled_at and self._met > 0
            if timing.kind is not TimingKind.OUTPUT_TOKEN:
                self._idle_share.read(self._met if hung_over else 0, excess)
            if started_at >= self._settled_at or (hung_over and excess <= 1):
                self._window.add(timing.kind, ratio, slow, doubt)
                self._judge(now)
        doubtful = ratio is None or self._share.cuts >= _DOUBTFUL_CUTS
        self._pauses.consider(now, doubtful=doubtful)

    def _learn(self, expected: Expected, timing: Timing, now: float) -> None:
        moved = expected.learn(timing, self._rhythm.rate(now))
        measuring = self.measuring
        self._pauses.measured(now)
        if measuring and not self.measuring:
            self._begin_window(now)
        if not 1 / _NOTABLE < moved < _NOTABLE:
            cuts = self._share.cuts
            self._share.forget(absolve=moved > 1)
            blame = "best-effort work is not the cause: " if moved > 1 and cuts else ""
            self.reason = f"measured: {blame}chat alone takes {moved:.2f} × what it did"
            self._begin_window(now)
            self.observer.share_changed(self, now)

    def _judge(self, now: float) -> None:
        found = self._window.judge(now)
        if found is None:
            return
        self.ratio = found.ratio
        move = self._share.judge(found.verdict, found.ratio, now, used=self._used)
        what = found.kind.replace("_", " ")
        self.reason = f"{move}: {what} {self.ratio:.2f} × alone, target {self.settings.target:g}"
        self._begin_window(now)
        if move is not Move.HELD:
            self.observer.share_changed(self, now)

    def _begin_window(self, now: float) -> None:
        self._window = Window(now, self.settings.target)
        self._used = False
        self._met = 0
        self._settled_at = now if self._settled else inf
