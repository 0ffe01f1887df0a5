"""The gate between best-effort work and a GPU where chat runs, and its accounts.

It counts requests, not their weights: heavier ones are bounded by the budget. Slots are those of
all endpoints on the GPU together, whether or not they share a budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from forebay.core.model import TimingKind
from forebay.core.protection.expected import Expected
from forebay.core.protection.share import Move, Share
from forebay.core.protection.window import Window

if TYPE_CHECKING:
    from forebay.core.member import Member
    from forebay.core.model import Timing
    from forebay.core.observer import Observer
    from forebay.core.protection.settings import ProtectionSettings
    from forebay.core.room import Room

# While chat is idle the share doubles this often, seconds; and how far, once it has been idle long.
_GROWTH_S = 0.5
_LONG_IDLE_S, _LONG_GROWTH_S = 30.0, 5.0
_MOST_DOUBLINGS = 30.0
# A pause to measure chat alone: how many readings it is for (the first one for more), and what it
# may cost, as a part of all time.
_FIRST_READINGS, _PROBE_READINGS = 24, 8
_PROBE_S = 10.0
_PROBE_EVERY_S = 30.0
_PROBE_PART = 0.05
_RELOOK_S = 0.1
_GAIN = 0.1
# Chat counts as active for a while after its last request: as long as its usual pauses, in which
# the next request is about to come, but not longer than this.
_LEAST_GRACE_S, _MOST_GRACE_S = 0.05, 1.0
_MOST_GAP_S = 10.0


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
    """

    group: str
    settings: ProtectionSettings
    observer: Observer
    rooms: list[Room] = field(default_factory=list)
    reason: str = "start: chat alone has not been measured yet"
    ratio: float | None = None
    chats: int = field(default=0, init=False)
    bulk: int = field(default=0, init=False)
    _floors: int = field(default=0, init=False)
    _share: Share = field(init=False)
    _expected: dict[tuple[str, TimingKind], Expected] = field(default_factory=dict, init=False)
    _window: Window = field(init=False)
    _wanted: bool = field(default=False, init=False)  # more, since the window began
    _judged_from: float = field(
        default=-inf, init=False
    )  # requests that began earlier do not count
    _idle_since: float = field(default=-inf, init=False)
    _gap_s: float = field(default=0.0, init=False)  # between chat requests, usually
    _bulk_since: float = field(default=0.0, init=False)
    _bulk_ended_at: float = field(default=-inf, init=False)
    _paused_until: float = field(default=-inf, init=False)
    _busy_s: float = field(default=0.0, init=False)  # per best-effort request, in turn
    _ended: int = field(default=0, init=False)  # best-effort requests of this busy time
    _known: bool = field(default=False, init=False)  # what chat takes alone
    _probe: _Probe | None = field(default=None, init=False)
    _measured_at: float = field(default=-inf, init=False)  # chat alone, the last time
    _next_probe_at: float = field(default=-inf, init=False)

    def __post_init__(self) -> None:
        least = self.settings.min_duty
        self._share = Share(self.settings.target, least, 1.0)
        self._window = Window(-inf)

    def __repr__(self) -> str:
        return f"<Guard {self.group}: share {self.share:.2f}, {self.bulk} in flight>"

    def watch(self, room: Room, floor: int) -> None:
        """Guard a room too, in which best-effort floors come to `floor` slots."""
        if room not in self.rooms:
            self.rooms.append(room)
        self._floors += floor
        self._share.least = self.settings.min_duty * max(1, self._floors)
        self._share.value = float(max(1, self._floors))

    @property
    def share(self) -> float:
        """Best-effort slots that chat bears while it is active; below 1 a duty."""
        return self._share.value

    # -- the gate ----------------------------------------------------------------------------------

    def holds(self, now: float) -> bool:
        """Whether no best-effort work may start now."""
        if self.bulk >= self._slots(now):
            return True
        return self._active(now) and (self._probe is not None or now < self._paused_until)

    def wanted(self) -> None:
        """Note that best-effort work waits for this gate."""
        self._wanted = True

    def opens_at(self, now: float) -> float:
        """When it is worth a look although nothing happens."""
        if not self._active(now):
            return now + _RELOOK_S
        at = inf if self.chats else self._idle_since + self._grace_s
        if self._probe is not None:
            return min(at, self._probe.gives_up_at)
        return min(at, self._paused_until) if self._paused_until > now else at

    def _active(self, now: float) -> bool:
        """Whether chat runs, or is about to."""
        return self.chats > 0 or now < self._idle_since + self._grace_s

    @property
    def _grace_s(self) -> float:
        return min(max(_LEAST_GRACE_S, 2 * self._gap_s), _MOST_GRACE_S)

    def _slots(self, now: float) -> int:
        """Best-effort requests that may be in flight."""
        share = max(1.0, self._share.value)
        if self._active(now) or self._idle_since == -inf:
            return int(share)
        idle_s = now - self._idle_since - self._grace_s
        quick = share * 2 ** min(idle_s / _GROWTH_S, _MOST_DOUBLINGS)
        most = max(share, self._drained_in_time())
        long_s = max(0.0, idle_s - _LONG_IDLE_S)
        return int(min(quick, most * 2 ** min(long_s / _LONG_GROWTH_S, _MOST_DOUBLINGS)))

    def _drained_in_time(self) -> float:
        """Best-effort requests that are done within the first-token time that chat may have."""
        if not self._busy_s:
            return 0.0
        goal_s = self.settings.first_token_s
        if goal_s is None:
            typical = [
                each.typical_s
                for (_, kind), each in self._expected.items()
                if kind is TimingKind.FIRST_TOKEN and each.typical_s is not None
            ]
            if not typical:
                return 0.0
            goal_s = self.settings.target * min(typical)
        return goal_s / self._busy_s

    # -- the accounts ------------------------------------------------------------------------------

    def started(self, member: Member, now: float) -> None:
        """A request starts."""
        if member.interactive:
            self.chats += 1
            if self.chats == 1 and self._idle_since > -inf:
                gap_s = min(now - self._idle_since, _MOST_GAP_S)
                self._gap_s += _GAIN * (gap_s - self._gap_s)
            if self.chats == 1 and self.bulk > self._slots(now):
                self._judged_from = inf  # until what chat's idle time let in has drained
        else:
            if not self.bulk:
                self._bulk_since = now
                self._ended = 0
            self.bulk += 1

    def ended(self, member: Member, now: float) -> None:
        """A request ends."""
        if member.interactive:
            self.chats -= 1
            if not self.chats:
                self._idle_since = now
            return
        self.bulk -= 1
        self._ended += 1
        if not self.bulk:
            self._bulk_ended_at = now
            busy_s = now - self._bulk_since
            each_s = busy_s / self._ended
            self._busy_s += (each_s - self._busy_s) * (_GAIN if self._busy_s else 1)
            if self._share.value < 1:
                self._paused_until = now + busy_s * (1 / self._share.value - 1)
        if self._judged_from == inf and self.bulk <= self._slots(now):
            self._judged_from = now

    def read(self, member: Member, timing: Timing, started_at: float, now: float) -> None:
        """A reading of chat: learn from it, and judge the share by it."""
        if not member.interactive or not timing.seconds > 0:
            return
        key = member.state.endpoint.id, timing.kind
        expected = self._expected.get(key)
        if expected is None:
            expected = self._expected[key] = Expected()
        alone = not self.bulk and started_at >= self._bulk_ended_at
        ratio = self._goal_ratio(expected, timing)
        if alone:
            expected.learn(timing, self.chats)
            self._measured_at = now
            if self._probe is not None:
                self._probe.readings += 1
                if self._probe.readings >= self._probe.enough:
                    self._end_probe(now)
                return
        if ratio is not None and self._probe is None and started_at >= self._judged_from:
            self._window.add(timing.kind, ratio)
            self._judge(now)
        self._consider_probe(now, unknown=ratio is None)

    def _goal_ratio(self, expected: Expected, timing: Timing) -> float | None:
        """A reading on the scale on which `target` is just right, chat's own scatter taken out."""
        goal_s = {
            TimingKind.FIRST_TOKEN: self.settings.first_token_s,
            TimingKind.OUTPUT_TOKEN: self.settings.output_token_s,
        }.get(timing.kind)
        if goal_s is not None:
            return self.settings.target * timing.seconds / goal_s
        ratio, scatter = expected.ratio(timing, self.chats), expected.scatter
        return None if ratio is None or scatter is None else ratio / scatter

    def _judge(self, now: float) -> None:
        found = self._window.worst(self.settings.target, now)
        if found is None:
            return
        kind, self.ratio = found
        move = self._share.judge(self.ratio, now, used=self._wanted)
        what = f"{kind.replace('_', ' ')} {self.ratio:.2f} × alone, target {self.settings.target:g}"
        self.reason = f"{move}: {what}"
        if move is Move.HELD:
            return
        if move is Move.NOT_THE_CAUSE:
            for expected in self._expected.values():
                expected.doubt()
            self._next_probe_at = now
        self._begin_window(now)
        self.observer.share_changed(self, now)

    def _begin_window(self, now: float) -> None:
        self._window = Window(now)
        self._wanted = False
        self._judged_from = now if self.bulk <= self._slots(now) else inf

    # -- pauses to measure chat alone --------------------------------------------------------------

    def look(self, now: float) -> None:
        """End a pause that has taken too long."""
        if self._probe is not None and (now >= self._probe.gives_up_at or not self._active(now)):
            self._end_probe(now)

    def _consider_probe(self, now: float, *, unknown: bool) -> None:
        if self._probe is not None or not self.bulk or now < self._next_probe_at:
            return
        if unknown or now - self._measured_at >= _PROBE_EVERY_S:
            enough = _PROBE_READINGS if self._known else _FIRST_READINGS
            self._probe = _Probe(now, now + _PROBE_S, enough)

    def _end_probe(self, now: float) -> None:
        probe, self._probe = self._probe, None
        if probe is not None:
            took_s = now - probe.began_at
            self._known = self._known or probe.readings >= probe.enough
            wait_s = max(_PROBE_EVERY_S, took_s / _PROBE_PART) if self._known else took_s
            self._next_probe_at = now + wait_s
            self._begin_window(now)


@dataclass(slots=True)
class _Probe:
    """A pause in which chat is measured alone."""

    began_at: float
    gives_up_at: float
    enough: int
    readings: int = 0
