"""Who is next in one room: R4, and that nobody starves.

- Whoever has the *turn* is next: a member that waited with nothing in flight while
  `max_overtakes` others started. Only priority members below their floor go before it. That is
  how a heavy request gathers room, and how `flex` work on a busy chat model progresses.
- Members below their floor come before those above; interactive ones come in order of arrival,
  best-effort ones by fair share.
- R4, yield: while an interactive request waits that lacks only room, best-effort members at or
  above their floor get nothing.
"""

from __future__ import annotations

from heapq import heappop, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.member import Member, Start
    from forebay.core.room import Line, Room


def next_start(room: Room) -> Start | None:
    """Return what may start in `room` now, first things first."""
    turn = room.turn
    if turn and room.held and not turn.interactive:  # its turn waits until the guard lets it go
        turn = None
    start = turn.startable(turn) if turn else None
    if start and room.fits(start[0], start[2], on_turn=True):
        return start
    reserved = _below_floor(room, turn, priority=True) if room.hungry else None
    if reserved or start:  # the holder of the turn lacks only room: nobody else takes any
        return reserved
    return _by_class(room, turn) or (None if room.inflight else _alone(room))


def _by_class(room: Room, turn: Member | None) -> Start | None:
    first = _front(room.interactive, turn)
    if first and room.fits(first[0], first[2]):
        return first
    if room.hungry and (start := _below_floor(room, turn, priority=False)):
        return start
    if first:  # it lacks only room, and nobody passes it: R4
        return None
    # Nobody passes the first of these either: if it is heavy, that is how it gathers room.
    first = _front(room.best_effort, turn)
    return first if first and room.fits(first[0], first[2]) else None


def _below_floor(room: Room, turn: Member | None, *, priority: bool) -> Start | None:
    for member in room.hungry:
        if member.priority is priority:
            start = member.startable(turn)
            if start and room.fits(member, start[2]):
                return start
    return None


def _front(line: Line, turn: Member | None) -> Start | None:
    """The first in line that its own endpoint would admit; others leave the line.

    They line up again when something changes at their endpoint.
    """
    while line:
        key, index, member = line[0]
        start = member.startable(turn)
        if start is None:
            heappop(line)
            member.lined_up = False
            continue
        true_key = member.room.key(member)
        if true_key <= key:
            return start
        heapreplace(line, (true_key, index, member))
    return None


def _alone(room: Room) -> Start | None:
    """The one that waited longest, in an empty room where each waits for the others' floors."""
    member = room.longest_starving
    start = member.startable(member) if member else None
    return start if start and room.fits(start[0], start[2], on_turn=True) else None
