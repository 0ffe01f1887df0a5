"""The gate between best-effort work and a GPU where chat runs, and its accounts.

It counts requests, not their weights: what heavier ones cost chat shows in chat's times. The share
is that of all endpoints on the GPU together, whether or not they share a budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from forebay.core.protection.pace import Pace
from forebay.core.protection.rhythm import Rhythm
from forebay.core.protection.steering import Steering

if TYPE_CHECKING:
    from forebay.core.grant import Grant
    from forebay.core.member import Member
    from forebay.core.model import Timing
    from forebay.core.observer import Observer
    from forebay.core.protection.settings import ProtectionSettings
    from forebay.core.room import Room

_MOST_SLOTS = 10**6
# Chat is alone in a gap of best-effort work once that has lasted so long. What fits into shorter
# ones are the fast requests.
_GAP_S = 2.0
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
        chats: requests of chat in flight.
        bulk: best-effort requests in flight.
        lifted: chat has left this GPU for good, and nothing is held back any more.
    """

    group: str
    settings: ProtectionSettings
    observer: Observer
    rooms: list[Room] = field(default_factory=list, init=False)
    chats: int = field(default=0, init=False)
    bulk: int = field(default=0, init=False)
    lifted: bool = field(default=False, init=False)
    _steering: Steering = field(init=False)
    _pace: Pace = field(default_factory=Pace, init=False)
    _rhythm: Rhythm = field(default_factory=Rhythm, init=False)
    _floors: int = field(default=0, init=False)
    # Requests that began since then did so under the present share; infinity until what is beyond
    # it has drained. What chat met when it came back, if its idle time is why there was more.
    _settled_at: float = field(default=-inf, init=False)
    _met: int = field(default=0, init=False)
    _bulk_ended_at: float = field(default=-inf, init=False)
    _awaiting: int = field(default=0, init=False)  # requests of chat without a first token yet

    def __post_init__(self) -> None:
        self._steering = Steering(self.settings)

    def __repr__(self) -> str:
        return f"<Guard {self.group}: share {self.share:.2f}, {self.bulk} in flight>"

    def cover(self, rooms: list[Room], floors: int) -> None:
        """Guard these rooms from now on.

        Args:
            rooms: all of its GPU.
            floors: best-effort slots that their endpoints are promised.
        """
        self.rooms = rooms
        share, begun = self._steering.share, float(max(1, self._floors))
        self._floors = floors
        slots = float(max(1, floors))
        share.least = self.settings.min_duty * slots
        # It begins there; what has been learned since stays.
        share.value = slots if share.value == begun else max(share.value, share.least)

    @property
    def share(self) -> float:
        """Best-effort slots that chat bears while it is active; below 1 a part of the time."""
        return self._steering.share.value

    @property
    def ratio(self) -> float | None:
        """Chat's times over what they are alone, as judged last; None before."""
        return self._steering.ratio

    @property
    def reason(self) -> str:
        """Why the share is what it is."""
        return self._steering.reason

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
        return self._steering.pauses.began_at is not None

    # -- the gate ----------------------------------------------------------------------------------

    def holds(self, now: float) -> bool:
        """Whether no best-effort work may start now."""
        if self.lifted:
            return False
        if self.measuring:
            return True
        if not self._active(now):
            return self.bulk >= self._idle_slots(now)
        self._pass_time(now)
        return self._pace.holds(self.bulk, self.share, put_off=self._awaiting > 0)

    def wanted(self) -> None:
        """Note that best-effort work waits for this gate."""
        if not self.measuring:
            self._steering.used = True

    def opens_at(self, now: float) -> float:
        """When it is worth a look although nothing happens; infinity if never."""
        if self.measuring:
            return min(self._steering.pauses.ends_at, inf if self.chats else self._rhythm.gone_at)
        if not self._active(now):
            return self._rhythm.grows_at(now)
        idle_at = inf if self.chats else self._rhythm.idle_at
        self._pass_time(now)
        opens_at = self._pace.opens_at(self.bulk, self.share, now, put_off=self._awaiting > 0)
        return min(idle_at, opens_at)

    def look(self, now: float) -> None:
        """End a pause that has taken too long, or that chat has left."""
        gone = not self.chats and now >= self._rhythm.gone_at
        if self.measuring and (gone or now >= self._steering.pauses.ends_at):
            self._steering.pauses.end(now)
            self._begin_level(now)

    def _active(self, now: float) -> bool:
        """Whether chat runs, or is about to."""
        return self.chats > 0 or now < self._rhythm.idle_at

    def _idle_slots(self, now: float) -> int:
        known, share = self._steering.known, self.share
        slots = max(share, self._steering.idle_share.value) if known else share
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
            self._met = 0
            if not self._active(now):
                self._pace.forgive(now)
                if not self._settled:
                    # After a long silence nothing was known of what chat's return bears.
                    steady = self._rhythm.growth(now, known=self._steering.known) <= 1
                    self._met = self.bulk if steady else 0
                    self._settled_at = inf
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
        """A reading of chat: learn from it, or judge the share by it."""
        if not member.interactive or not timing.seconds > 0:
            return
        steering, endpoint = self._steering, member.state.endpoint.id
        window, rate, moved = steering.window, self._rhythm.rate(now), False
        measured = self.measuring
        alone_at = self._bulk_ended_at + (0.0 if measured else _GAP_S)
        if not self.bulk and started_at >= alone_at and not self._paces:
            moved = steering.learn(endpoint, timing, rate, now)
        elif not self.measuring:
            settled = started_at >= self._settled_at
            moved = steering.compare(endpoint, timing, rate, now, settled=settled, met=self._met)
        if steering.window is not window or (measured and not self.measuring):
            self._begin_level(now)
        if moved:
            self.observer.share_changed(self, now)

    @property
    def _paces(self) -> bool:
        """Whether best-effort work that waits is between two starts: that is no time without it."""
        return not self.measuring and any(room.bulk_waits for room in self.rooms)

    def _begin_level(self, now: float) -> None:
        """From now on requests of chat count that begin under the present share."""
        self._met = 0
        self._settled_at = now if self._settled else inf
